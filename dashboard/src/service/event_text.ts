// Server-sent events, parsed from the bytes of a response. A browser's EventSource cannot send a token.

export interface ServerEvent {
  event: string;
  data: string;
}

/** A parser that takes text in any pieces, and gives whole events. */
export class EventTextParser {
  #rest = "";

  /** Takes the next piece of text. A comment is an event named `comment`. */
  push(text: string): ServerEvent[] {
    this.#rest += text;
    const blocks = this.#rest.split("\n\n");
    this.#rest = blocks.pop() ?? "";
    return blocks.map(parseBlock).filter((event) => event !== null);
  }
}

function parseBlock(block: string): ServerEvent | null {
  let event = "message";
  const data: string[] = [];
  let comment: string | null = null;
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event = value;
    else if (field === "data") data.push(value);
    else if (field === "" && colon === 0) comment = value;
  }
  if (data.length > 0) return { event, data: data.join("\n") };
  return comment === null ? null : { event: "comment", data: comment };
}
