"use strict";
// The page is whole without this: it adds sorting and filtering.
(function () {
  var tools = document.querySelector(".tools");
  var rows = Array.prototype.slice.call(document.querySelectorAll("tr[data-verdict]"));
  if (!tools || !rows.length) return;
  var text = tools.querySelector("input[type=search]");
  var boxes = Array.prototype.slice.call(tools.querySelectorAll("input[type=checkbox]"));
  var shown = tools.querySelector("output");
  function filter() {
    var words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    var on = {};
    boxes.forEach(function (b) { on[b.value] = b.checked; });
    var n = 0;
    rows.forEach(function (r) {
      var all = r.textContent.toLowerCase();
      var show = on[r.dataset.verdict] && words.every(function (w) { return all.indexOf(w) >= 0; });
      r.hidden = !show;
      if (show) n++;
    });
    shown.textContent = n + " of " + rows.length + " shown";
  }
  function sort(head, up) {
    var body = head.closest("table").tBodies[0];
    var at = head.cellIndex;
    var list = Array.prototype.slice.call(body.rows);
    function key(r) { var c = r.cells[at]; return c.dataset.sort !== undefined ? c.dataset.sort : c.textContent; }
    list.sort(function (a, b) {
      var x = key(a), y = key(b);
      if (x === "" || y === "") return x === y ? 0 : x === "" ? 1 : -1; // what is not known comes last
      var c = x.localeCompare(y, "en", { numeric: true });
      return up ? c : -c;
    });
    list.forEach(function (r) { body.appendChild(r); });
    Array.prototype.forEach.call(head.parentNode.cells, function (h) { h.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }
  document.querySelectorAll("table.pairs th").forEach(function (h) {
    var b = document.createElement("button");
    b.type = "button";
    b.textContent = h.textContent;
    h.textContent = "";
    h.appendChild(b);
    b.addEventListener("click", function () { sort(h, h.getAttribute("aria-sort") !== "ascending"); });
  });
  text.addEventListener("input", filter);
  boxes.forEach(function (b) { b.addEventListener("change", filter); });
  tools.hidden = false;
  filter();
})();
