// The form speaks to the server through one value, its query: while a slider moves, and again when it rests.
(function () {
  "use strict";
  var form = document.getElementById("question");
  var resting = null;

  function tellSlider(slider, text) { slider.setAttribute("aria-valuetext", text); }

  function valueOf(slider) {
    var low = parseFloat(slider.dataset.low), high = parseFloat(slider.dataset.high);
    var value = low * Math.pow(high / low, slider.value / slider.max);
    var whole = "whole" in slider.dataset;
    value = Number(value.toPrecision(whole && value >= 1000 ? 4 : 3));
    return String(Math.min(high, Math.max(low, whole ? Math.round(value) : value)));
  }

  function placeSlider(typed) {
    var slider = form.querySelector("[data-for='" + typed.id + "']"), value = Number(typed.value);
    if (!(value > 0)) { return; }
    var low = parseFloat(slider.dataset.low), high = parseFloat(slider.dataset.high);
    slider.value = Math.round(slider.max * Math.log(value / low) / Math.log(high / low));
    tellSlider(slider, typed.value);
  }

  function chosen(name) { return form.querySelector("[name='" + name + "']:checked").value; }

  function query() {
    var active = ["", chosen("noise"), chosen("by"), chosen("sampling")];
    var asked = new URLSearchParams({ noise: chosen("noise") });
    form.querySelectorAll(".control").forEach(function (control) {
      control.hidden = active.indexOf(control.dataset.when) < 0;
      var typed = control.querySelector(".typed");
      if (!control.hidden) { asked.append(typed.name, typed.value.trim()); }
    });
    return asked.toString();
  }

  function ask() {
    var asked = query();
    Shiny.setInputValue("asked", asked);
    window.clearTimeout(resting);
    resting = window.setTimeout(function () {
      Shiny.setInputValue("settled", asked);
      window.history.replaceState(null, "", "?" + asked);
    }, 300);
  }

  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.addEventListener("input", function (event) {
    var from = event.target;
    if (from.classList.contains("slider")) {
      document.getElementById(from.dataset.for).value = valueOf(from);
      tellSlider(from, valueOf(from));
    } else if (from.classList.contains("typed")) {
      placeSlider(from);
    }
    ask();
  });

  document.getElementById("compare").addEventListener("click", function () {
    Shiny.setInputValue("compare", query(), { priority: "event" });
  });

  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-copy]");
    if (!button) { return; }
    var from = document.getElementById(button.dataset.copy);
    var text = from.id === "link" ? window.location.origin + window.location.pathname + "?" + from.dataset.query : from.textContent;
    navigator.clipboard.writeText(text).then(function () {
      button.textContent = "Copied";
      window.setTimeout(function () { button.textContent = "Copy"; }, 1500);
    });
  });

  $(document).on("shiny:connected", ask);
  $(document).on("shiny:value", function (event) {
    window.setTimeout(function () {
      plrvoCharts(event.target);
      form.querySelectorAll(".typed").forEach(function (typed) { typed.removeAttribute("aria-invalid"); });
      var wrong = document.getElementById("wrong");
      var typed = wrong && document.getElementById(wrong.dataset.argument);
      if (typed) { typed.setAttribute("aria-invalid", "true"); }
    }, 0);
  });
}());
