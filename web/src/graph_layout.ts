// SPDX-License-Identifier: Apache-2.0
// Places of boxes. Networks are long chains of small blocks: where one box alone is still read further on, the graph is
// cut, dagre lays out each piece, and pieces of the same shape share one layout. So the time grows with the number of
// boxes and not with its square. Edges that reach over very many boxes, such as those of a mask that every block reads,
// do not hold pieces together.
import { graphlib, layout as dagre } from "@dagrejs/dagre";

export type Place = { x: number; y: number };

export interface Box {
  label: string;
  sub: string;
  layer: number;
  node: number; // of the ONNX graph; -1: a layer, an input or an output
  members: number[];
  rank: number; // the order in the model
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Edge {
  from: number;
  to: number;
  label: string;
  far: boolean;
  bends: Place[]; // between the two boxes
}

const FAR = 250;
const LARGEST = 500;
const GAP = 34;
const BESIDE = 22;


/// Boxes in the order of the model; edges lead forward except where `far`. Calls `pause` between pieces.
export async function place(boxes: Box[], edges: Edge[], pause: () => Promise<boolean>): Promise<boolean> {
  for (const edge of edges) edge.far = edge.to <= edge.from || edge.to - edge.from > FAR;
  const near = edges.filter((edge) => !edge.far);
  const from: Edge[][] = boxes.map(() => []);
  for (const edge of near) from[edge.from].push(edge);
  const known = new Map<string, Layout>();
  let y = 0;
  let last: Box | null = null;
  let open = new Map<number, number>(); // box -> the last that reads it
  let begin = 0;
  for (let i = 0; i < boxes.length; ++i) {
    const reach = Math.max(-1, ...from[i].map((edge) => edge.to));
    if (reach > i) open.set(i, reach);
    for (const [source, until] of open) if (until <= i) open.delete(source);
    const alone = open.size === 0 || (open.size === 1 && open.has(i));
    if (!alone && i + 1 < boxes.length) continue;
    y = piece(boxes, from, begin, i + 1, y, last, known);
    last = boxes[i];
    begin = i + 1;
    open = new Map([...open].filter(([source]) => source === i));
    if (!(await pause())) return false;
  }
  return true;
}

interface Layout {
  places: Place[];
  bends: Place[][]; // by link
}

/// Places boxes [begin, end) below `last`, which they may read and which has its place; returns where they end.
function piece(boxes: Box[], from: Edge[][], begin: number, end: number, y: number, last: Box | null, known: Map<string, Layout>): number {
  const first = last ? begin - 1 : begin;
  const mine = boxes.slice(first, end);
  const links: [number, number][] = [];
  const drawn: Edge[] = [];
  for (let i = first; i < end; ++i)
    for (const edge of from[i]) {
      if (edge.to >= end) continue;
      links.push([i - first, edge.to - first]);
      drawn.push(edge);
    }
  const shape = `${mine.map((box) => `${box.width},${box.height}`).join(";")}|${links.join(";")}`;
  let layout = known.get(shape);
  if (!layout) {
    layout = mine.length <= 2 && links.length === mine.length - 1 ? chain(mine) : mine.length > LARGEST ? ranks(mine, links) : byDagre(mine, links);
    known.set(shape, layout);
  }
  const { places, bends } = layout;
  const dx = (last ? last.x : 0) - places[0].x;
  const dy = last ? last.y - places[0].y : y - Math.min(...places.map((p, i) => p.y - mine[i].height / 2));
  let bottom = y;
  mine.forEach((box, i) => {
    if (i >= begin - first) {
      box.x = places[i].x + dx;
      box.y = places[i].y + dy;
    }
    bottom = Math.max(bottom, box.y + box.height / 2);
  });
  drawn.forEach((edge, e) => (edge.bends = (bends[e] ?? []).map((p) => ({ x: p.x + dx, y: p.y + dy }))));
  return bottom;
}

function chain(boxes: Box[]): Layout {
  let y = 0;
  const places = boxes.map((box) => {
    const at = { x: 0, y: y + box.height / 2 };
    y += box.height + GAP;
    return at;
  });
  return { places, bends: [] };
}

function byDagre(boxes: Box[], links: [number, number][]): Layout {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: "TB", ranksep: GAP, nodesep: BESIDE, edgesep: 14 });
  graph.setDefaultEdgeLabel(() => ({}));
  boxes.forEach((box, i) => graph.setNode(String(i), { width: box.width, height: box.height }));
  for (const [a, b] of links) graph.setEdge(String(a), String(b));
  // What reads nothing of this piece stands below its first box all the same, which ends the piece above.
  const read = new Set(links.map(([, b]) => b));
  for (let i = 1; i < boxes.length; ++i) if (!read.has(i)) graph.setEdge("0", String(i), { weight: 0 });
  dagre(graph);
  const places = boxes.map((_, i) => {
    const { x, y } = graph.node(String(i)) as unknown as Place;
    return { x, y };
  });
  const bends = links.map(([a, b]) => {
    const { points } = graph.edge(String(a), String(b)) as unknown as { points: Place[] };
    // An edge to the next line needs no bend.
    return points.length > 3 ? points.slice(1, -1).map(({ x, y }) => ({ x, y })) : [];
  });
  return { places, bends };
}

/// For a piece that is too large for dagre: lines by the longest path, filled in the order of the model.
function ranks(boxes: Box[], links: [number, number][]): Layout {
  const rank: number[] = boxes.map((_, i) => (i === 0 ? 0 : 1));
  for (const [a, b] of links) rank[b] = Math.max(rank[b], rank[a] + 1);
  const filled: number[] = [];
  const places = boxes.map((box, i) => {
    const x = filled[rank[i]] ?? 0;
    filled[rank[i]] = x + box.width + BESIDE;
    return { x: x + box.width / 2, y: rank[i] * (box.height + GAP) + box.height / 2 };
  });
  return { places: places.map((p, i) => ({ x: p.x - (filled[rank[i]] - BESIDE) / 2, y: p.y })), bends: [] };
}
