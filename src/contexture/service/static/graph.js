// Who is tied to whom, as a drawing and as a list.
import { el, number, svg } from "./dom.js";
import { t } from "./i18n.js";

const WIDTH = 720;
const HEIGHT = 360;
const MARGIN = { x: 90, y: 28 };
const STEPS = 160;
const KINDS = ["person", "organization", "place", "name"];

/** The graph of an executed command; nothing when it found no ties. */
export function graph(executed) {
  const { entities = [], relations = [], asked = [] } = executed.details ?? {};
  if (entities.length === 0) return el("div", { class: "card empty", text: t("graph.none") });
  const places = laidOut(entities, relations);
  return el(
    "section",
    { class: "card", "aria-label": t("graph") },
    el("h3", { text: t("graph") }),
    svg(
      "svg",
      { class: "graph", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": t("graph.told", { entities: number(entities.length), relations: number(relations.length) }) },
      relations.filter((each) => places.has(each.head) && places.has(each.tail)).map((each) => tie(each, places)),
      entities.map((each) => knot(each, places.get(each.name), asked.includes(each.name))),
    ),
    el("details", {}, el("summary", { text: t("graph.list") }), el("ul", { class: "ties" }, relations.map(said))),
  );
}

function tie(relation, places) {
  const from = places.get(relation.head);
  const to = places.get(relation.tail);
  return svg(
    "g",
    { class: "tie" },
    svg("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y, "stroke-width": 1 + 4 * relation.strength }),
    relation.label && svg("text", { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 - 5, "text-anchor": "middle", text: relation.label }),
  );
}

function knot(entity, place, asked) {
  const kind = KINDS.includes(entity.kind) ? entity.kind : "name";
  const size = 9 + 3 * Math.min(4, Math.sqrt(entity.mentions));
  return svg(
    "g",
    { class: asked ? "knot asked" : "knot", data: { kind } },
    svg("title", { text: `${entity.name}: ${t(`kind.${kind}`)}, ${entity.articles.join(", ")}` }),
    svg("circle", { cx: place.x, cy: place.y, r: size }),
    svg("text", { x: place.x, y: place.y + size + 14, "text-anchor": "middle", text: entity.name }),
  );
}

function said(relation) {
  const label = relation.label || t("graph.together");
  return el("li", {}, el("strong", { text: relation.head }), ` — ${label} → `, el("strong", { text: relation.tail }), el("span", { class: "hint", text: ` ${number(relation.strength, 2)}, ${relation.articles.join(", ")}` }));
}

/** Places that are the same for the same graph: a ring, pulled by ties and pushed by neighbours. */
function laidOut(entities, relations) {
  const places = new Map(
    entities.map((entity, at) => {
      const angle = (2 * Math.PI * at) / entities.length;
      return [entity.name, { x: WIDTH / 2 + 240 * Math.cos(angle), y: HEIGHT / 2 + 120 * Math.sin(angle) }];
    }),
  );
  const all = [...places.values()];
  const pairs = relations.map(({ head, tail }) => [places.get(head), places.get(tail)]).filter(([one, other]) => one && other);
  for (let step = 0; step < STEPS; step += 1) {
    const heat = 12 * (1 - step / STEPS);
    const moves = new Map(all.map((place) => [place, { x: (WIDTH / 2 - place.x) * 0.01, y: (HEIGHT / 2 - place.y) * 0.03 }]));
    for (const one of all) for (const other of all) if (one !== other) push(one, other, moves.get(one), 9000);
    for (const [one, other] of pairs) pull(one, other, moves);
    for (const [place, move] of moves) settle(place, move, heat);
  }
  spread(all, "x", MARGIN.x, WIDTH - MARGIN.x);
  spread(all, "y", MARGIN.y, HEIGHT - MARGIN.y - 16);
  return places;
}

/** Let the places take all the room there is along one axis. */
function spread(all, axis, from, to) {
  const least = Math.min(...all.map((place) => place[axis]));
  const most = Math.max(...all.map((place) => place[axis]));
  for (const place of all) {
    place[axis] = most - least < 1 ? (from + to) / 2 : from + ((place[axis] - least) * (to - from)) / (most - least);
  }
}

function push(one, other, move, force) {
  const [dx, dy] = [one.x - other.x || 0.1, one.y - other.y || 0.1];
  const far = dx * dx + dy * dy;
  move.x += (dx * force) / far / Math.sqrt(far);
  move.y += (dy * force) / far / Math.sqrt(far);
}

function pull(one, other, moves) {
  for (const [from, to] of [[one, other], [other, one]]) {
    moves.get(from).x += (to.x - from.x) * 0.03;
    moves.get(from).y += (to.y - from.y) * 0.03;
  }
}

function settle(place, move, heat) {
  const length = Math.hypot(move.x, move.y) || 1;
  const step = Math.min(length, heat);
  place.x += (move.x / length) * step;
  place.y += (move.y / length) * step;
}
