// Moves between places of the page, so that the browser's buttons do what they promise.

import { useEffect, useState } from "preact/hooks";

import { linkTo, placeOf, type Place } from "../model/place";

/** The place that the address names, followed as it changes. */
export function usePlace(): Place {
  const [place, setPlace] = useState(placeOf(location.hash));
  useEffect(() => {
    const follow = (): void => setPlace(placeOf(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return place;
}

interface EntryState {
  /** This page went to the consumer from its resource, which the entry before is. */
  isOpened: boolean;
}

/** Goes to a consumer. */
export function openConsumer(resource: string, consumer: string): void {
  location.hash = linkTo(resource, consumer);
  history.replaceState({ isOpened: true } satisfies EntryState, "");
}

/** Goes from a consumer to its resource, and leaves no entry that the button for going back would stop at. */
export function closeConsumer(resource: string): void {
  if ((history.state as EntryState | null)?.isOpened === true) history.back();
  else location.replace(linkTo(resource));
}

/** Follows a click on the link of a consumer, unless it is to open elsewhere. */
export function followToConsumer(event: MouseEvent, resource: string, consumer: string): void {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  openConsumer(resource, consumer);
}
