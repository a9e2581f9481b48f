// Attention: every layer and head as matrix and as lines, for each hypothesis, and as maps over pictures.
import * as api from "./api.js"
import {element} from "./element.js"
import "./lines.js"
import {grid, thumbnail} from "./matrix.js"
import {Pane, section} from "./pane.js"
import {picture} from "./picture.js"
import {scaleOf} from "./palette.js"
import * as trace from "./trace.js"

const SHARE = scaleOf([], {share: true})

export class AttentionPane extends Pane {
  static unavailable(model) {
    const nothing = "This model has no attention."
    return model.views.includes("attention") ? "" : nothing
  }

  viewToSave() {
    return {view: "attention", options: this.options}
  }

  async render(signal) {
    const many = ["translate", "caption"].includes(this.page.model.task) ? Math.max(1,
      this.page.model.decode?.method === "beam" ? this.page.model.decode.beam : 1) : 1
    const hypothesis = Math.min(many, this.number("hypothesis") || 1)
    const options = hypothesis > 1 ? {hypothesis} : {}
    const data = await this.fetchView("attention", options, signal)
    const maps = await this.weights(data, options, signal)
    const chosen = maps.find(map => map.name === this.value("layer")) ?? maps.at(-1)
    const heads = chosen.heads.length, defaultHead = heads > 1 ? 0 : 1
    const head = Math.min(heads, Math.max(defaultHead, Number(this.page.controls.head || defaultHead)))
    this.options = {...options, layer: chosen.name, ...(head ? {head} : {})}
    this.controls([
      {key: "layer", kind: "select", label: "Layer", options: maps.map(map => map.name), value: maps.at(-1).name,
        hint: "The layer whose weights are shown."},
      ...(heads > 1 ? [{key: "head", kind: "slider", label: "Head", min: 0, max: heads, step: 1, value: 0,
        format: k => k || "all", hint: "One head; 0 is the mean of all heads."}] : []),
      ...(many > 1 ? [{key: "hypothesis", kind: "slider", label: "Hypothesis", min: 1, max: many, step: 1, value: 1,
        hint: "Which result of the beam search is shown; 1 is the best."}] : []),
    ])
    const values = head ? chosen.grids[head - 1] : mean(chosen.grids)
    const drawn = this.page.model.views.includes("maps") ? (await this.fetchView("maps", {}, signal)).pictures : []
    this.showResult(...drawn.map(each => section(null, null, picture(each))),
      element("div", {class: "pair"}, ...this.large(chosen, head, values)), this.all(maps, chosen, head))
  }

  /** The weights of each layer and head; for a long input they are in the trace. */
  async weights(data, options, signal) {
    if (this.data === data) return this.maps
    const long = data.maps.some(map => !map.weights)
    const traced = long ? trace.parse(await api.file("attention",
      {model: this.page.model.name, input: this.page.payload, options}, "trace", signal)) : null
    this.data = data
    this.maps = data.maps.map(map => ({...map, rounded: long,
      grids: map.weights ? map.weights.map(grid) : parts(traced.get(`${map.name}.weights`))}))
    return this.maps
  }

  large(map, head, values) {
    const name = `${map.name}, ${head ? `head ${head}` : "mean of the heads"}`
    const matrix = element("seq-matrix", {"data-name": "attention"}), lines = element("seq-lines")
    matrix.addEventListener("point", ({detail}) => lines.highlight(detail &&
      {row: detail.row, column: detail.row === null ? detail.column : null}))
    lines.addEventListener("point", ({detail}) => matrix.highlight(detail))
    const {follows, share} = head ? map.heads[head - 1] : {}
    const summary = follows ? `Attends mostly to ${follows}: ${Math.round(100 * share)} % of its weight. ` : ""
    const rounded = map.rounded ? " Long input: weights are rounded to 1/255." : ""
    queueMicrotask(() => {
      matrix.show({values, rows: map.rows, columns: map.columns, scale: SHARE, what: `weights of ${name}`,
        words: ["from", "at"]})
      lines.show({values, left: map.rows, right: map.columns, what: `the largest weights of ${name}`})
    })
    return [
      section(name, `${summary}A row for each token that attends; its weights sum to 1.${rounded}`, matrix),
      section("Lines", "Left attends to right; the stronger the line, the larger the weight.", lines),
    ]
  }

  /** A row for each layer, with a picture of each head. */
  all(maps, chosen, head) {
    if (maps.length === 1 && maps[0].heads.length === 1) return null
    return section("All layers and heads", "Choose a head to see it above.",
      element("div", {class: "layers"}, ...maps.map(map => element("div", {class: "heads"},
      element("h4", {}, map.name), element("div", {class: "row"}, ...map.grids.map((values, h) => element("button", {
        type: "button", class: "head", "aria-pressed": String(map === chosen && head === h + 1),
          "data-key": `head-${map.name}-${h}`,
        title: `${map.name}, head ${h + 1} ${map.heads[h].follows && `attends to ${map.heads[h].follows}`}`,
        onclick: () => this.set({layer: map.name, head: h + 1}),
      }, thumbnail(values, SHARE, {width: 84, height: Math.max(20, Math.min(84, 84 * values.rows / values.columns))}),
      element("small", {}, `${h + 1} ${map.heads[h].follows}`))))))))
  }
}

function mean(grids) {
  const data = new Float64Array(grids[0].data.length)
  for (const each of grids) each.data.forEach((value, k) => { data[k] += value / grids.length })
  return {...grids[0], data}
}

function parts({shape, data}) {
  const [rows, columns] = shape.slice(-2), size = rows * columns
  return Array.from({length: data.length / size}, (_, k) =>
    ({rows, columns, data: data.subarray(k * size, (k + 1) * size)}))
}
