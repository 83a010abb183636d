for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.onclick = () => {
      const turned = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(one => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", turned ? "descending" : "ascending");
      const key = row => row.cells[column].dataset.key;
      const order = (a, b) => key(a) - key(b) || key(a).localeCompare(key(b));
      const rows = [...table.tBodies[0].rows].sort(order);
      table.tBodies[0].append(...(turned ? rows.reverse() : rows));
    };
  });
}
