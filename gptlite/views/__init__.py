"""HTML pages and SVG plots from plain numbers, without torch."""
