// What scrolls inside a page can be scrolled with the keyboard, and the two columns beside the text have names.
for (const each of document.querySelectorAll("pre, .table-wrapper")) {
  if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
}
document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
// Markdown has no other way to leave the corner of a table empty; it is no header.
for (const each of document.querySelectorAll("th")) {
  if (!each.textContent.trim()) each.replaceWith(document.createElement("td"));
}
// The page of the search has no title of its own.
if (!document.querySelector("h1")) {
  document.querySelector("article")?.prepend(Object.assign(document.createElement("h1"), { textContent: "Search" }));
}
