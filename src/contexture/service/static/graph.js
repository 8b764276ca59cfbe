// The graph of entities and relations, as a drawing and as a list.
import { el, number, svg } from "./dom.js";
import { t } from "./i18n.js";

const WIDTH = 720;
const HEIGHT = 360;
const MARGIN = { x: 90, y: 28 };
const STEPS = 160;
const KINDS = ["person", "organization", "place", "name"];

/** The graph of an executed command; a note if it has no entities. */
export function graph(executed) {
  const { entities = [], relations = [], asked = [] } = executed.details ?? {};
  if (entities.length === 0) return el("div", { class: "card empty", text: t("graph.none") });
  const places = layOut(entities, relations);
  return el(
    "section",
    { class: "card", "aria-label": t("graph") },
    el("h3", { text: t("graph") }),
    svg(
      "svg",
      { class: "graph", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": t("graph.summary", { entities: number(entities.length), relations: number(relations.length) }) },
      relations.filter((each) => places.has(each.head) && places.has(each.tail)).map((each) => edge(each, places)),
      entities.map((each) => entityNode(each, places.get(each.name), asked.includes(each.name))),
    ),
    el("details", {}, el("summary", { text: t("graph.list") }), el("ul", { class: "relations" }, relations.map(relationItem))),
  );
}

function edge(relation, places) {
  const from = places.get(relation.head);
  const to = places.get(relation.tail);
  return svg(
    "g",
    { class: "graph-edge" },
    svg("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y, "stroke-width": 1 + 4 * relation.strength }),
    relation.label && svg("text", { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 - 5, "text-anchor": "middle", text: relation.label }),
  );
}

function entityNode(entity, place, asked) {
  const kind = KINDS.includes(entity.kind) ? entity.kind : "name";
  const size = 9 + 3 * Math.min(4, Math.sqrt(entity.mentions));
  return svg(
    "g",
    { class: asked ? "graph-node asked" : "graph-node", data: { kind } },
    svg("title", { text: `${entity.name}: ${t(`kind.${kind}`)}, ${entity.articles.join(", ")}` }),
    svg("circle", { cx: place.x, cy: place.y, r: size }),
    svg("text", { x: place.x, y: place.y + size + 14, "text-anchor": "middle", text: entity.name }),
  );
}

function relationItem(relation) {
  const label = relation.label || t("graph.together");
  return el("li", {}, el("strong", { text: relation.head }), ` — ${label} → `, el("strong", { text: relation.tail }), el("span", { class: "hint", text: ` ${number(relation.strength, 2)}, ${relation.articles.join(", ")}` }));
}

/** Force-directed layout that starts from a ring; the same graph always gives the same layout. */
function layOut(entities, relations) {
  const places = new Map(
    entities.map((entity, at) => {
      const angle = (2 * Math.PI * at) / entities.length;
      return [entity.name, { x: WIDTH / 2 + 240 * Math.cos(angle), y: HEIGHT / 2 + 120 * Math.sin(angle) }];
    }),
  );
  const all = [...places.values()];
  const pairs = relations.map(({ head, tail }) => [places.get(head), places.get(tail)]).filter(([one, other]) => one && other);
  for (let step = 0; step < STEPS; step += 1) {
    const maxStep = 12 * (1 - step / STEPS);
    const moves = new Map(all.map((place) => [place, { x: (WIDTH / 2 - place.x) * 0.01, y: (HEIGHT / 2 - place.y) * 0.03 }]));
    for (const one of all) for (const other of all) if (one !== other) repel(one, other, moves.get(one), 9000);
    for (const [one, other] of pairs) attract(one, other, moves);
    for (const [place, move] of moves) moveNode(place, move, maxStep);
  }
  stretch(all, "x", MARGIN.x, WIDTH - MARGIN.x);
  stretch(all, "y", MARGIN.y, HEIGHT - MARGIN.y - 16);
  return places;
}

/** Scale the positions along one axis to the available space. */
function stretch(all, axis, from, to) {
  const least = Math.min(...all.map((place) => place[axis]));
  const most = Math.max(...all.map((place) => place[axis]));
  for (const place of all) {
    place[axis] = most - least < 1 ? (from + to) / 2 : from + ((place[axis] - least) * (to - from)) / (most - least);
  }
}

function repel(one, other, move, force) {
  const [dx, dy] = [one.x - other.x || 0.1, one.y - other.y || 0.1];
  const squaredDistance = dx * dx + dy * dy;
  move.x += (dx * force) / squaredDistance / Math.sqrt(squaredDistance);
  move.y += (dy * force) / squaredDistance / Math.sqrt(squaredDistance);
}

function attract(one, other, moves) {
  for (const [from, to] of [[one, other], [other, one]]) {
    moves.get(from).x += (to.x - from.x) * 0.03;
    moves.get(from).y += (to.y - from.y) * 0.03;
  }
}

function moveNode(place, move, maxStep) {
  const length = Math.hypot(move.x, move.y) || 1;
  const step = Math.min(length, maxStep);
  place.x += (move.x / length) * step;
  place.y += (move.y / length) * step;
}
