// Sorts a table by a click on a head, or by the address: #sort=TABLE.COLUMN or #sort=TABLE.COLUMN.descending, columns from 0.
(() => {
  const missing = (key) => key === "" || Number.isNaN(key);
  const keyOf = (cell) => {
    const value = cell.dataset.value;
    if (value === undefined) return cell.textContent;
    return value === "" ? "" : Number(value);
  };
  const compare = (one, other) =>
    typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
  const sort = (table, column, descending) => {
    const heads = [...table.tHead.rows[0].cells];
    if (!heads[column]) return;
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
    const body = table.tBodies[0];
    const lines = [...body.rows].map((row) => ({ row, key: keyOf(row.cells[column]) }));
    // What is missing stays at the end either way.
    lines.sort((one, other) => missing(one.key) - missing(other.key) || (descending ? -1 : 1) * compare(one.key, other.key));
    lines.forEach((line) => body.append(line.row));
  };
  const byAddress = () => {
    const [id, column, order] = decodeURIComponent(location.hash).replace(/^#sort=/, "").split(".");
    const table = document.getElementById(id);
    const head = table?.tHead?.rows[0].cells[Number(column)];
    if (!head || !table.classList.contains("sortable")) return;
    const button = head.querySelector("button");
    button.click();
    if (order === "descending" && head.getAttribute("aria-sort") === "ascending") button.click();
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) =>
      head.querySelector("button").addEventListener("click", () => sort(table, column, head.getAttribute("aria-sort") === "ascending"))
    );
  }
  window.addEventListener("hashchange", byAddress);
  if (location.hash.startsWith("#sort=")) byAddress();
})();
