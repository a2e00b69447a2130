// A chart tells its values: the nearest point under the pointer, or one after the other with the arrow keys.
(function () {
  "use strict";
  var tip = document.getElementById("tip");
  var active = null;

  function hide() {
    if (active) { active.classList.remove("active"); }
    active = null;
    tip.hidden = true;
  }

  function show(point) {
    if (active === point) { return; }
    hide();
    active = point;
    point.classList.add("active");
    tip.textContent = point.getAttribute("data-tip");
    tip.hidden = false;
    var box = point.getBoundingClientRect();
    var own = tip.getBoundingClientRect();
    var left = box.left + box.width / 2 - own.width / 2;
    var above = box.top - own.height - 8;
    tip.style.left = Math.max(4, Math.min(left, document.documentElement.clientWidth - own.width - 4)) + "px";
    tip.style.top = (above > 4 ? above : box.bottom + 8) + "px";
  }

  function listen(root) { root.querySelectorAll("svg.plot").forEach(function (plot) {
    var points = Array.prototype.slice.call(plot.querySelectorAll("[data-tip]"));
    if (!points.length) { return; }
    var places = points.map(function (point) {
      return [parseFloat(point.getAttribute("data-x")), parseFloat(point.getAttribute("data-y"))];
    });
    var at = -1;

    function nearest(event) {
      var matrix = plot.getScreenCTM().inverse();
      var x = matrix.a * event.clientX + matrix.e;
      var y = matrix.d * event.clientY + matrix.f;
      var best = -1;
      var least = 40 * 40;  // farther away is no point
      places.forEach(function (place, i) {
        var distance = Math.pow(place[0] - x, 2) + Math.pow(place[1] - y, 2);
        if (distance < least) { least = distance; best = i; }
      });
      return best;
    }

    function go(i) {
      at = i;
      if (i < 0) { hide(); } else { show(points[i]); }
    }

    plot.addEventListener("pointermove", function (event) { go(nearest(event)); });
    plot.addEventListener("pointerdown", function (event) { go(nearest(event)); });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("focus", function () { if (plot.matches(":focus-visible")) { go(Math.max(at, 0)); } });
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", function (event) {
      var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") { hide(); return; }
      if (event.key === "Home") { step = -points.length; }
      if (event.key === "End") { step = points.length; }
      if (step === undefined) { return; }
      event.preventDefault();
      go(Math.max(0, Math.min(points.length - 1, at + step)));
    });
  }); }

  listen(document);
  window.plrvoCharts = listen;  // for charts that come later

  window.addEventListener("scroll", hide, { passive: true });
  function unfold() {  // what a link leads to is open
    var target = window.location.hash && document.getElementById(window.location.hash.slice(1));
    var folded = target && target.querySelector("details.folded");
    if (folded) { folded.open = true; }
  }
  window.addEventListener("hashchange", unfold);
  unfold();

  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details.document, details.folded").forEach(function (part) { part.open = true; });
  });
}());
