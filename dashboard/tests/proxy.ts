// A reverse proxy that has a service below a path, and nothing else.

import { createServer, request, type Server } from "node:http";

import { freePort } from "./gateway";

export class PathProxy {
  readonly url: string;
  /** Requests for anything that is not below the path. */
  readonly astray: string[] = [];
  readonly #server: Server;

  private constructor(
    readonly port: number,
    path: string,
    service: string,
  ) {
    this.url = `http://127.0.0.1:${port}${path}`;
    this.#server = createServer((asked, answer) => {
      const url = asked.url ?? "";
      if (!url.startsWith(path)) {
        this.astray.push(url);
        answer.writeHead(404).end();
        return;
      }
      const { method, headers } = asked;
      const passed = request(
        service + url.slice(path.length),
        { ...(method && { method }), headers },
        (got) => {
          answer.writeHead(got.statusCode ?? 502, got.headers);
          got.pipe(answer);
        },
      );
      passed.on("error", () => answer.destroy());
      answer.on("close", () => passed.destroy());
      asked.pipe(passed);
    });
  }

  /** Passes requests below `path` to the service, whose address ends with a slash. */
  static async start(path: string, service: string): Promise<PathProxy> {
    const proxy = new PathProxy(await freePort(), path, service);
    await new Promise<void>((resolve) => proxy.#server.listen(proxy.port, "127.0.0.1", resolve));
    return proxy;
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
