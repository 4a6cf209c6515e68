// SPDX-License-Identifier: Apache-2.0
// What `tessera explore` writes (docs/explore.md) as types: the machines of a space, and those that no other one beats.

export interface Point {
  number: number;
  machine: Record<string, number | string>;
  megahertz?: number;
  dram_latency?: number;
  judge?: string;
  figures: Record<string, number>;
}

export interface Exploration {
  schema: string;
  networks?: { name: string }[];
  objectives?: string[];
  points: Point[];
  front: number[];
  reasons?: string[];
}
