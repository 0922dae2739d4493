/** The address of a resource in this page. */
export function linkTo(resource: string): string {
  return `#/${encodeURIComponent(resource)}`;
}
