"use strict";
(() => {
  document.documentElement.classList.add("js");
  const flame = document.getElementById("flame");
  if (flame) {
    const note = document.getElementById("flame-note");
    const reset = document.getElementById("flame-reset");
    const boxes = Array.from(flame.children, (box) => ({
      box,
      left: parseFloat(box.style.left),
      width: parseFloat(box.style.width),
      top: parseFloat(box.style.top),
    }));
    const zoom = (to) => {
      const right = to.left + to.width;
      for (const one of boxes) {
        const end = one.left + one.width;
        const above = one.top < to.top && one.left <= to.left + 0.002 && end >= right - 0.002;
        const below = one.top >= to.top && one.left >= to.left - 0.002 && end <= right + 0.002;
        one.box.hidden = !(above || below);
        one.box.classList.toggle("above", above);
        const left = above ? 0 : ((one.left - to.left) / to.width) * 100;
        const width = above ? 100 : (one.width / to.width) * 100;
        one.box.style.left = left + "%";
        one.box.style.width = width + "%";
      }
      reset.hidden = to.top === 0;
      note.textContent = to.box.title.split("\n").join(" · ");
    };
    flame.addEventListener("click", (event) => {
      const to = boxes.find((one) => one.box === event.target);
      if (to && to.width > 0) zoom(to);
    });
    reset.addEventListener("click", () => zoom(boxes[0]));
  }
  const slider = document.getElementById("zoom");
  if (slider) {
    const lanes = document.getElementById("lanes");
    slider.addEventListener("input", () => {
      const scroller = lanes.parentElement;
      const middle = (scroller.scrollLeft + scroller.clientWidth / 2) / lanes.scrollWidth;
      lanes.style.setProperty("--zoom", String(2 ** Number(slider.value)));
      scroller.scrollLeft = middle * lanes.scrollWidth - scroller.clientWidth / 2;
    });
  }
  // A link to a stack opens it.
  const open = () => {
    const to = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (to instanceof HTMLDetailsElement) to.open = true;
  };
  addEventListener("hashchange", open);
  document.addEventListener("click", (event) => {
    if (event.target.closest && event.target.closest('a[href^="#"]')) setTimeout(open, 0);
  });
  open();
})();
