// What a reader by keyboard, by ear or with weak sight would miss; read by test_pages_in_chromium.py.
(() => {
  const all = (query) => [...document.querySelectorAll(query)];
  const name = (e) => `${e.tagName.toLowerCase()}.${e.className.baseVal ?? e.className} "${e.textContent.trim().slice(0, 40)}"`;
  const labelled = (e) => {
    const by = e.getAttribute("aria-labelledby");
    const text = by ? by.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ") : e.getAttribute("aria-label");
    return Boolean((text ?? "").trim());
  };
  const seen = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility === "visible" && !e.closest("[aria-hidden='true'] .vh, .vh");

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const ground = (e) => {
    const stack = [];
    for (let at = e; at; at = at.parentElement) stack.push(rgba(getComputedStyle(at).backgroundColor));
    return stack.reverse().reduce((below, top) => over(top, below), rgba("Canvas"));
  };
  const light = ([r, g, b]) => {
    const part = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const contrast = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const opacity = (e) => {
    let all = 1;
    for (let at = e; at; at = at.parentElement) all *= Number(getComputedStyle(at).opacity);
    return all;
  };
  const pale = () => {
    const told = new Set();
    for (const e of all("body *")) {
      const words = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
      if (!words || !seen(e)) continue;
      const style = getComputedStyle(e), svg = e instanceof SVGElement;
      const ink = rgba(svg ? style.fill : style.color), behind = ground(svg ? e.closest("svg").parentElement : e);
      ink[3] *= opacity(e);
      // a letter in a filled circle stands on the circle
      if (svg && contrast(over(ink, behind), behind) < 1.2) continue;
      const found = contrast(over(ink, behind), behind);
      if (found < 4.5) told.add(`${found.toFixed(1)}:1 in ${name(e)}`);
    }
    return [...told];
  };

  window.review = () => {
    const wrong = [], say = (what, e) => wrong.push(e ? `${what}: ${name(e)}` : what);
    all("details").forEach((e) => (e.open = true));
    if (!document.documentElement.lang) say("no lang");
    if (!document.title) say("no title");
    const first = document.querySelector("a[href]");
    if (!first?.getAttribute("href").startsWith("#") || !document.querySelector(first.getAttribute("href"))) say("no skip link");
    let above = 0;
    for (const head of all("h1, h2, h3, h4, h5, h6")) {
      const level = Number(head.tagName[1]);
      if (level > above + 1) say(`h${level} after h${above}`, head);
      if (!head.textContent.trim()) say("empty heading", head);
      above = level;
    }
    if (all("h1").length !== 1) say(`${all("h1").length} h1`);
    for (const e of all("table")) if (!e.querySelector("caption")?.textContent.trim() && !labelled(e)) say("table without a name", e);
    for (const e of all("th")) if (!e.getAttribute("scope")) say("th without scope", e);
    for (const e of all("[role=img]")) if (!labelled(e)) say("image without a label", e);
    for (const e of all("svg.plot")) if (!e.closest("[role=img]")) say("plot outside an image", e);
    for (const e of all("svg:not(.plot)")) if (e.getAttribute("aria-hidden") !== "true" && !labelled(e)) say("drawing without a label", e);
    for (const e of all("[role=region], nav, section")) if (!labelled(e)) say("region without a label", e);
    for (const e of all("a[href^='#']")) if (!document.getElementById(e.getAttribute("href").slice(1))) say(`leads nowhere ${e.getAttribute("href")}`, e);
    for (const e of all(".stack")) if (innerWidth < 500 && e.offsetWidth > e.parentElement.clientWidth + 1) say(`too wide for a phone (${e.offsetWidth})`, e);
    const ids = all("[id]").map((e) => e.id);
    if (new Set(ids).size < ids.length) say(`ids stand twice: ${ids.filter((id, i) => ids.indexOf(id) < i).slice(0, 3)}`);
    return wrong.concat(pale());
  };

  // where the first part that is folded begins; a page without one ends there
  window.first_fold = () => {
    const fold = document.querySelector(".part > details:not([open])") ?? document.querySelector("footer");
    return fold ? fold.getBoundingClientRect().top + scrollY : document.documentElement.scrollHeight;
  };
  // links into a folded part unfold it
  window.folded = async () => {
    const wrong = [];
    for (const link of all("nav a[href^='#']")) {
      const target = document.getElementById(link.getAttribute("href").slice(1)), fold = target.closest("details");
      if (!fold || fold.open) continue;
      link.click();
      await new Promise((done) => setTimeout(done, 50));
      if (!fold.open) wrong.push(link.getAttribute("href"));
    }
    return wrong;
  };

  // on paper nothing can be opened, scrolled or lit
  window.unprinted = () => {
    const wrong = [];
    all("details").forEach((e) => (e.open = false));
    for (const e of all("details:not(.twice) > :not(summary)")) if (!e.checkVisibility()) wrong.push(`closed: ${name(e)}`);
    const paper = rgba(getComputedStyle(document.body).backgroundColor);
    if (light(paper) < 0.95) wrong.push(`dark paper: ${paper}`);
    for (const e of all("table, figure, pre")) {
      const box = e.getBoundingClientRect();
      if (box.width && box.right > document.documentElement.clientWidth + 1) wrong.push(`cut off at ${Math.round(box.right)}: ${name(e)}`);
    }
    return wrong.concat(pale());
  };

  const every = () => all("*");
  window.stops = () => all("a[href], summary, button, input, [tabindex='0']").filter((e) => e.getClientRects().length).map((e) => every().indexOf(e));
  window.stopped = () => {
    const e = document.activeElement;
    if (!e || e === document.body) return null;
    const style = getComputedStyle(e);
    return { at: every().indexOf(e), text: e.textContent.trim().slice(0, 40), outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 };
  };
})();
