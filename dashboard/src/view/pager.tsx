// Long lists, a page at a time: a page of rows costs the same however long the list is.

export interface Page<T> {
  items: T[];
  number: number;
  pages: number;
  from: number;
  total: number;
}

export function pageOf<T>(all: T[], wanted: number, size: number): Page<T> {
  const pages = Math.max(1, Math.ceil(all.length / size));
  const number = Math.min(Math.max(wanted, 0), pages - 1);
  const from = number * size;
  return { items: all.slice(from, from + size), number, pages, from, total: all.length };
}

export function Pager<T>({
  page,
  noun,
  onPage,
}: {
  page: Page<T>;
  noun: string;
  onPage: (page: number) => void;
}) {
  if (page.pages === 1) return null;
  const last = page.from + page.items.length;
  return (
    <div class="pager">
      <span class="number">
        {(page.from + 1).toLocaleString("en")} to {last.toLocaleString("en")} of{" "}
        {page.total.toLocaleString("en")} {noun}
      </span>
      <button
        aria-label={`Earlier ${noun}`}
        disabled={page.number === 0}
        onClick={() => onPage(page.number - 1)}
      >
        ‹
      </button>
      <button
        aria-label={`Further ${noun}`}
        disabled={page.number === page.pages - 1}
        onClick={() => onPage(page.number + 1)}
      >
        ›
      </button>
    </div>
  );
}
