// The place in the page that an address names: `#/RESOURCE`, or `#/RESOURCE/CONSUMER`.

export interface Place {
  /** `null`: the list of resources. */
  resource: string | null;
  /** `null`: the resource itself. */
  consumer: string | null;
}

const NOWHERE: Place = { resource: null, consumer: null };

/** The address of a place in this page. */
export function linkTo(resource: string, consumer: string | null = null): string {
  const parts = consumer === null ? [resource] : [resource, consumer];
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function placeOf(hash: string): Place {
  if (!hash.startsWith("#/")) return NOWHERE;
  try {
    const [resource, consumer] = hash.slice(2).split("/").map(decodeURIComponent);
    return { resource: resource || null, consumer: consumer || null };
  } catch {
    return NOWHERE;
  }
}
