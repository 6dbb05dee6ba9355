"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  root.classList.add("scripted");

  const element = (tag, text, attributes = {}) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const drawing = (tag, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };

  // Light or dark: as the system says, until the reader chooses. Where storage is refused the choice lasts as long
  // as the page.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("crucible-theme"); } catch { chosen = null; }
  const show = () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    root.style.colorScheme = chosen ? chosen : "";
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${dark ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    chosen = (chosen ? chosen === "dark" : system.matches) ? "light" : "dark";
    try { localStorage.setItem("crucible-theme", chosen); } catch { /* it lasts as long as the page */ }
    show();
  });
  system.addEventListener("change", show);
  show();

  // Error maps. A character stands for an error of 10^((n - 8) / 4) times what is allowed.
  const levels = "0123456789abcdefghijklmnopqrstuvINU";
  const kinds = [
    ["e0", "allowed"], ["e1", "1 to 10 times what is allowed"], ["e2", "to 100 times"], ["e3", "to 1000 times"],
    ["e4", "to 10 000 times"], ["e5", "more"], ["einfinite", "infinite"], ["enan", "NaN"],
    ["eunwritten", "never written"],
  ];
  const kindOf = (mark) => {
    const level = levels.indexOf(mark);
    if (level >= 32) return level - 26;
    return level <= 8 ? 0 : Math.min(5, 1 + Math.floor((level - 9) / 4));
  };
  const paths = (rows) => {
    const found = kinds.map(() => ({ d: "", cells: 0 }));
    rows.forEach((row, y) => {
      for (let x = 0, end; x < row.length; x = end) {
        const kind = kindOf(row[x]);
        for (end = x + 1; end < row.length && kindOf(row[end]) === kind;) end += 1;
        found[kind].cells += end - x;
        found[kind].d += `M${x} ${y}h${end - x}v1h${x - end}z`;
      }
    });
    return found;
  };
  const cellWords = (down, height, across, width) => (down === height && across === width
    ? "a cell for each"
    : `a cell is the worst of about ${(down / height).toPrecision(2)} × ${(across / width).toPrecision(2)}`);
  const draw = (figure, one, number) => {
    const { index, rows } = one.pictures[number];
    const [height, width] = [rows.length, rows[0].length];
    const svg = drawing("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", preserveAspectRatio: "none" });
    const legend = figure.querySelector(".scale");
    legend.replaceChildren();
    paths(rows).forEach(({ d, cells }, kind) => {
      if (!cells) return;
      svg.append(drawing("path", { d, class: kinds[kind][0] }));
      const item = element("li");
      const swatch = drawing("svg", { width: 10, height: 10, class: "swatch" });
      swatch.append(drawing("rect", { width: 10, height: 10, class: kinds[kind][0] }));
      item.append(swatch, `${kinds[kind][1]}: ${cells} cells`);
      legend.append(item);
    });
    const shape = one.shape;
    const [across, down] = [shape[shape.length - 1], shape.length > 1 ? shape[shape.length - 2] : 1];
    const words = `Plane [${[...index, ":", ":"].join(", ")}], ${down} × ${across} elements, ` +
      cellWords(down, height, across, width);
    svg.setAttribute("aria-label", `${words}. ${[...legend.children].map((item) => item.textContent).join(", ")}`);
    svg.setAttribute("height", Math.min(352, Math.max(96, 352 * height / width)));
    figure.querySelector(".cells").replaceChildren(svg);
    figure.querySelector(".plane").textContent = words;
    figure.querySelectorAll("select").forEach((select) => { select.value = index[Number(select.dataset.dim)]; });
  };
  const nearest = (pictures, current, dim, value) => {
    const distance = (index) => index.reduce((sum, i, d) => sum + (d === dim ? 0 : Math.abs(i - current[d])), 0);
    const fitting = pictures.filter((picture) => picture.index[dim] === value);
    return pictures.indexOf(fitting.reduce((a, b) => (distance(b.index) < distance(a.index) ? b : a)));
  };
  document.querySelectorAll("[data-map]").forEach((figure) => {
    const one = data.maps[figure.dataset.map];
    if (!one.pictures.length) return;
    let number = 0;
    const turn = (next) => { number = next; draw(figure, one, number); };
    figure.querySelectorAll("select").forEach((select) => select.addEventListener("change", () => {
      turn(nearest(one.pictures, one.pictures[number].index, Number(select.dataset.dim), Number(select.value)));
    }));
    figure.querySelectorAll("[data-step]").forEach((step) => {
      step.hidden = one.pictures.length < 2;
      step.addEventListener("click", () => {
        turn((number + Number(step.dataset.step) + one.pictures.length) % one.pictures.length);
      });
    });
    turn(one.start);
  });

  // Two candidates side by side.
  const ratio = (a, b) => {
    if (a === null || b === null || !(a > 0) || !(b > 0)) return "";
    const times = Math.max(a, b) / Math.min(a, b);
    return times < 1.1 ? `${(100 * (times - 1)).toPrecision(2)} %` : `${times.toPrecision(3)} times`;
  };
  const compare = (box) => {
    const { labels, entries } = data.comparisons[box.dataset.compare];
    const [one, other] = [...box.querySelectorAll("select")].map((select) => entries[Number(select.value)]);
    const all = box.querySelector("[data-all]").checked;
    const table = element("table");
    const head = element("tr");
    for (const text of ["Number", one.name, other.name, "Apart by"]) head.append(element("th", text, { scope: "col" }));
    const body = element("tbody");
    labels.forEach((label, i) => {
      const [a, b] = [one.cells[i], other.cells[i]];
      if (a[0] === b[0] && (!all || a[0] === "-")) return;
      const row = element("tr");
      row.append(element("td", label), element("td", a[0]), element("td", b[0]));
      row.append(element("td", ratio(a[1], b[1]), { class: "than" }));
      body.append(row);
    });
    const top = element("thead");
    top.append(head);
    table.append(top, body);
    const result = box.querySelector(".result");
    result.replaceChildren(body.children.length ? table : element("p", "No number differs.", { class: "note" }));
  };
  document.querySelectorAll("[data-compare]").forEach((box) => {
    box.addEventListener("change", () => compare(box));
    compare(box);
  });

  // Of a long run only what is looked for: rows of the ranking and their cards.
  document.querySelectorAll("[data-filter]").forEach((box) => {
    const section = document.getElementById(box.dataset.filter);
    const rows = [...section.querySelectorAll(".ranking tbody:not(.baselines) tr")].map((row) => {
      const link = row.querySelector(".name a");
      return { row, card: document.getElementById(link.hash.slice(1)), name: link.textContent.toLowerCase() };
    });
    const [text, state] = [box.querySelector("[data-text]"), box.querySelector("[data-state]")];
    const filter = () => {
      const wanted = text.value.trim().toLowerCase();
      let shown = 0;
      rows.forEach(({ row, card, name }) => {
        const fits = name.includes(wanted) && (!state.value || row.classList.contains(state.value));
        row.hidden = card.hidden = !fits;
        shown += fits ? 1 : 0;
      });
      box.querySelector("[data-count]").textContent = `${shown} of ${rows.length} candidates`;
    };
    box.addEventListener("input", filter);
    filter();
  });

  // A link into folded text unfolds it.
  const unfold = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest("details");
    if (folded) { folded.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
