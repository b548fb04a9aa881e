"use strict";
// The page is whole without this: it adds sorting, and picking rows by words and marks.
(function () {
  var rows = Array.prototype.slice.call(document.querySelectorAll("table.pick tbody tr"));
  if (!rows.length) return;
  function make(name, attributes, inside) {
    var e = document.createElement(name);
    Object.keys(attributes).forEach(function (k) { e.setAttribute(k, attributes[k]); });
    (inside || []).forEach(function (c) { e.append(c); });
    return e;
  }
  var marks = rows.map(function (r) { return r.dataset.mark; }).filter(function (m, i, all) { return m && all.indexOf(m) === i; });
  var text = make("input", { type: "search", placeholder: "filter: words that a row must have", "aria-label": "filter" });
  var boxes = marks.map(function (m) { return make("input", { type: "checkbox", value: m, checked: "" }); });
  var shown = make("output", {});
  var tools = make("div", { "class": "tools" }, [text].concat(boxes.map(function (b) { return make("label", {}, [b, " " + b.value]); }), [shown]));
  function filter() {
    var words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    var off = boxes.filter(function (b) { return !b.checked; }).map(function (b) { return b.value; });
    var n = 0;
    rows.forEach(function (r) {
      var all = r.textContent.toLowerCase();
      r.hidden = off.indexOf(r.dataset.mark) >= 0 || !words.every(function (w) { return all.indexOf(w) >= 0; });
      if (!r.hidden) n++;
    });
    shown.textContent = n + " of " + rows.length + " shown";
  }
  // key is the number that a cell begins with ("~10.0", "97.6 ±0.3"), or its text; what is not known is "".
  function key(r, at, numbers) {
    var s = r.cells[at].textContent;
    return s === "-" ? "" : numbers ? parseFloat(s.replace(/^[^0-9]*/, "")) : s;
  }
  function sort(head, up) {
    var body = head.closest("table").tBodies[0], at = head.cellIndex, numbers = head.classList.contains("num");
    Array.prototype.slice.call(body.rows).sort(function (a, b) {
      var x = key(a, at, numbers), y = key(b, at, numbers);
      if (x === "" || y === "") return x === y ? 0 : x === "" ? 1 : -1; // what is not known comes last
      var c = numbers ? x - y : x.localeCompare(y, "en", { numeric: true });
      return up ? c : -c;
    }).forEach(function (r) { body.appendChild(r); });
    Array.prototype.forEach.call(head.parentNode.cells, function (h) { h.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }
  document.querySelectorAll("table.pick th").forEach(function (h) {
    var b = make("button", { type: "button" }, [h.textContent]);
    h.replaceChildren(b);
    b.addEventListener("click", function () { sort(h, h.getAttribute("aria-sort") !== "ascending"); });
  });
  text.addEventListener("input", filter);
  boxes.forEach(function (b) { b.addEventListener("change", filter); });
  var first = rows[0].closest("section");
  first.insertBefore(tools, first.querySelector("h2").nextSibling);
  filter();
})();
