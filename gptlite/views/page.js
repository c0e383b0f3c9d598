"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

// A new element inside `parent`; texts never become HTML.
function add(parent, tag, className = "", text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  parent.append(element);
  return element;
}
