"use strict";
// Unknown values stay last in both directions; equal ones keep their order.
function keyOf(row, column, numeric) {
  const cell = row.cells[column];
  if (!numeric) return cell.textContent.trim();
  const text = cell.dataset.key;
  return text === "" || text === undefined ? null : Number(text);
}
function order(a, b, numeric) {
  return numeric ? a - b : a.localeCompare(b, "en", { numeric: true });
}
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const down = header.getAttribute("aria-sort") === "ascending";
      const numeric = header.classList.contains("num");
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => [keyOf(row, column, numeric), row]);
      rows.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return (down ? -1 : 1) * order(a, b, numeric);
      });
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows.map(([, row]) => row));
    });
  });
}
