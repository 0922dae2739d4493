// Documents of the broker: see docs/transfers.openapi.json.

export interface Lane {
  peak_bps: number;
  current_bps: number | null;
  active: number;
  reserved_bps: number;
  lent_bps: number;
}

export interface StorageNode {
  name: string;
  place: string;
  free: number | null;
  read: Lane;
  write: Lane;
  sensor: { age_s: number; recent: boolean } | null;
  waiting: number;
}

export interface Nodes {
  nodes: StorageNode[];
  waiting: number;
}

export interface Transfer {
  way: "read" | "write";
  name: string | null;
  size: number;
  moved: number;
  replica: boolean;
  node: string | null;
  expected_bps: number | null;
  heard_s: number;
}

export interface Transfers {
  transfers: Transfer[];
  all: number;
}
