// Inside: gates and states through time, text coloured by a unit, the flow of gradients, what an answer rests on; and
// every other view that the model has.
import {chart} from "./chart.js"
import {button} from "./control.js"
import {element, shown} from "./element.js"
import "./matrix.js"
import {Pane, capital, section} from "./pane.js"
import {picture} from "./picture.js"
import {scaleOf} from "./palette.js"
import {Stage} from "./stage.js"
import {choice, coloured} from "./tokens.js"

const LOOKS = {
  gates: ["lens", "gates and states through time"], cells: ["cells", "text coloured by a unit"],
    gradients: ["gradients", "flow of the gradient"],
  saliency: ["saliency", "what an answer rests on"], trellis: ["trellis", "hidden states"],
    band: ["band", "forecast and its band"],
  glimpses: ["glimpses", "windows on a picture"], positions: ["positions", "positions"],
    embeddings: ["embeddings", "embeddings"], bpe: ["bpe", "merges of the tokenizer"],
}
const ELSEWHERE = ["attention", "maps", "lens", "number", "beam", "what-if", "training"]  // in other panes
const GATES = {i: "input gate", f: "forget gate", g: "candidate", o: "output gate", r: "reset gate", u: "update gate",
  z: "update gate", n: "candidate", c: "cell", h: "state"}

export class InsidePane extends Pane {
  static refuses(model) {
    return looksOf(model).length ? "" : "This model has nothing inside that could be drawn."
  }

  saved() {
    const look = this.look()
    return look === "gates" ? {view: "lens", options: {layer: this.shownStage}} : {view: lookAt(look)[0],
      options: this.options ?? {}}
  }

  look() {
    const there = looksOf(this.page.model)
    return there.includes(this.page.controls.look) ? this.page.controls.look : there[0]
  }

  async render(signal) {
    const there = looksOf(this.page.model), look = this.look()
    this.first = {key: "look", kind: "select", label: "Look at", options: there.map(name => [name, lookAt(name)[1]]),
      value: there[0], hint: "What is drawn below."}
    this.options = {}
    await (this[look] ?? this.pictures).call(this, signal, look)
  }

  async gates(signal) {
    const data = await this.ask("lens", {}, signal)
    const stages = data.stages.filter(about => about.shape.length === 2 && about.name.split(".").at(-1) in GATES &&
      about.values).map(about => new Stage(about, data))
    if (!stages.length) {
      this.controls([this.first])
      return this.fill(element("p", {class: "empty"},
        "This model has no recurrent states, or the input is too long to show them all. Follow shows every stage."))
    }
    const layers = [...new Set(stages.map(stage => stage.name.slice(0, stage.name.lastIndexOf("."))))]
    const layer = layers.includes(this.value("layer")) ? this.value("layer") : layers[0]
    const own = stages.filter(stage => stage.name.startsWith(`${layer}.`) &&
      !stage.name.slice(layer.length + 1).includes("."))
    const what = own.find(stage => stage.leaf === this.value("what")) ?? own.at(-1)
    const size = what.shape[1], unit = Math.min(size - 1, Math.max(0, this.number("unit") || 0))
    this.shownStage = what.name
    this.controls([this.first,
      {key: "layer", kind: "select", label: "Layer", options: layers, value: layers[0],
        hint: "Which recurrent layer, and in which direction it reads."},
      {key: "what", kind: "select", label: "Matrix of", options: own.map(stage => [stage.leaf, GATES[stage.leaf]]),
        value: own.at(-1).leaf, hint: "Which gate or state the matrix shows: time down, units across."},
      {key: "unit", kind: "slider", label: "Unit", min: 0, max: size - 1, step: 1, value: 0,
        hint: "The unit whose gates are drawn through time. A click into the matrix chooses one too."}])
    const rows = what.rows(), times = rows.map((_, t) => t)
    const matrix = element("seq-matrix", {"data-name": "gates"})
    matrix.addEventListener("pick", ({detail}) => this.set({unit: detail.column}))
    queueMicrotask(() => matrix.show({values: what.grid(), rows, columns: [], scale: what.scale(),
      what: `${GATES[what.leaf]} of ${layer}`, words: ["", "unit"], picked: {row: null, column: unit}}))
    const curve = stage => ({name: GATES[stage.leaf], x: times,
      y: Array.from(times, t => stage.grid().data[t * size + unit])})
    this.fill(section(`${capital(GATES[what.leaf])} of ${layer}`,
      "A row for each token as it is read, a column for each unit.", matrix),
      element("div", {class: "pair"},
        chart({title: `Gates of unit ${unit}`, labels: rows, series: own.filter(stage => !["c", "h", "g",
          "n"].includes(stage.leaf)).map(curve), yTitle: "0 is shut, 1 is open"}),
        chart({title: `States of unit ${unit}`, labels: rows, series: own.filter(stage => ["c", "h", "g",
          "n"].includes(stage.leaf)).map(curve)})))
  }

  async cells(signal) {
    this.options = {...(this.page.controls.layer ? {layer: this.page.controls.layer} : {}),
      ...(this.page.controls.unit ? {unit: Number(this.page.controls.unit)} : {}),
      ...(this.page.controls.pattern ? {pattern: this.page.controls.pattern} : {})}
    const data = await this.ask("cells", this.options, signal)
    this.controls([this.first,
      {key: "unit", kind: "number", label: "Unit", min: 0, max: 9999, value: data.unit,
        hint: "The unit that colours the text; empty is the one that follows something best."},
      {key: "pattern", kind: "text", label: "Pattern", value: "", placeholder: "[aeiou]",
        hint: "A regular expression: which units follow what it finds?"}])
    const scale = scaleOf(data.values)
    this.fill(section(`Unit ${data.unit} of ${data.layer}`,
      "Orange is above zero, blue below; point at a token for the number.",
      coloured(data.tokens, data.values, scale, {label: `the text coloured by unit ${data.unit}`})),
      data.followers.length ? section("Units that follow something",
        "Area under the ROC curve (1 and 0 are perfect, 0.5 is chance); for the place, correlation. Choose one.",
        element("table", {}, element("tr", {}, ...["what", "layer", "unit",
          "score"].map(name => element("th", {scope: "col"}, name))), ...data.followers.map((each, k) =>
          element("tr", {}, element("td", {}, each.what), element("td", {}, each.layer),
            element("td", {}, button(String(each.unit), "Colour the text by this unit.",
            () => this.set({layer: each.layer, unit: each.unit}), {"data-key": `follower-${k}`})),
              element("td", {}, shown(each.score)))))) : null)
  }

  async gradients(signal) {
    this.options = this.page.controls.position ? {position: this.number("position")} : {}
    const data = await this.ask("gradients", this.options, signal), place = data.position - 1
    this.controls([this.first])
    const back = data.norms.map(norms => norms.slice(0, place + 1))
    const series = data.layers.map((name, l) => ({name, x: back[l].map((_, t) => place - t).reverse(),
      y: back[l].map(norm => Math.log10(Math.max(norm, 1e-30))).reverse()}))
    this.fill(
      section("Verdict", "What one step back through time leaves of the gradient, on average.",
        ...data.sentences.map((sentence, l) =>
        element("p", {class: `verdict ${data.verdicts[l] ?? ""}`}, sentence))),
      section("Whose loss is sent back", "Choose a position; without a choice it is the last.",
        choice(data.places, place, k => this.set({position: k + 1}), {label: "positions", key: "place"})),
      chart({title: "Norm of the gradient of the loss", series, xTitle: "steps back from the loss",
        yTitle: "log10 of ‖dL/dh‖"}),
      ...data.pictures.slice(1).map(each => section(null, null, picture(each))))
  }

  async saliency(signal) {
    const methods = [["integrated", "integrated gradients"], ["gradient", "gradient times input"],
      ["leave-one-out", "leave one out"]]
    const method = this.page.controls.method ?? "integrated"
    this.options = {method, ...(this.page.controls.position ? {position: this.number("position")} : {})}
    const [data, lens] = await Promise.all([this.ask("saliency", this.options, signal), this.ask("lens", {}, signal)])
    this.controls([this.first, {key: "method", kind: "select", label: "Method", options: methods, value: "integrated",
      hint: "How the share of each token in the answer is measured."}])
    const sides = [["The source", data.source], ["Written before", data.written_before]].filter(([, side]) => side)
    const scale = scaleOf(sides.flatMap(([, [, values]]) => values))
    const sum = sides.flatMap(([, [, values]]) => values).reduce((total, value) => total + value, 0)
    this.fill(
      section("Which answer", "Choose the answer that is to be explained.",
        choice(lens.answered, data.position - 1, k => this.set({position: k + 1}), {label: "answers", key: "answer"})),
      ...sides.map(([name, [tokens, values]]) => section(name,
      "What each token adds to the log-probability: orange speaks for the answer, blue against it.",
        coloured(tokens, values, scale, {label: `${name}, coloured by what each token adds`}))),
      section("The sum", null, element("p", {}, "The log-probability of ", element("bdi", {}, data.answer),
        ` is ${shown(data.log_probability, 4)}. `,
        data.baseline === undefined || data.baseline === null ? `The shares add up to ${shown(sum, 4)}.`
          : `With nothing to read it is ${shown(data.baseline, 4)}; the shares add up to ${shown(sum, 4)} `
            + `of a difference of ${shown(data.log_probability - data.baseline, 4)} (${data.steps} steps).`)))
  }

  async pictures(signal, look) {
    this.controls([this.first])
    const data = await this.ask(lookAt(look)[0], {}, signal)
    this.fill(section(capital(data.title), null, ...data.pictures.map(picture)))
  }
}

const lookAt = name => LOOKS[name] ?? [name, name.replaceAll("-", " ")]
const looksOf = model => [...Object.keys(LOOKS).filter(name => model.views.includes(LOOKS[name][0])),
  ...model.views.filter(view => !(view in LOOKS) && !ELSEWHERE.includes(view))]
