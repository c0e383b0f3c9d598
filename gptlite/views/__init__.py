"""Pages and pictures of numbers that others computed."""
