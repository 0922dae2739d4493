/** The path of a service, from that of its page. A proxy may serve the page with and without its last slash. */
export function servicePath(pagePath: string): string {
  return pagePath.endsWith("/") ? pagePath : `${pagePath}/`;
}
