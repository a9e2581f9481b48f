// Inside: gates and states through time, text coloured by a unit, gradients through time, contributions of tokens, and
// every other view of the model.
import {chart} from "./chart.js"
import {button} from "./control.js"
import {element, formatNumber} from "./element.js"
import "./matrix.js"
import {Pane, capitalise, section} from "./pane.js"
import {picture} from "./picture.js"
import {scaleOf} from "./palette.js"
import {Stage} from "./stage.js"
import {tokenButtons, colouredTokens} from "./tokens.js"

const SECTIONS = {
  gates: ["lens", "gates and states through time"], cells: ["cells", "text coloured by a unit"],
    gradients: ["gradients", "gradient through time"],
  saliency: ["saliency", "contribution of each token"], trellis: ["trellis", "hidden states"],
    band: ["band", "forecast and its band"],
  glimpses: ["glimpses", "glimpses of a picture"], positions: ["positions", "positions"],
    embeddings: ["embeddings", "embeddings"], bpe: ["bpe", "merges of the tokenizer"],
}
const IN_OTHER_PANES = ["attention", "maps", "lens", "number", "beam", "what-if", "training"]
const GATES = {i: "input gate", f: "forget gate", g: "candidate", o: "output gate", r: "reset gate", u: "update gate",
  z: "update gate", n: "candidate", c: "cell", h: "state"}

export class InsidePane extends Pane {
  static unavailable(model) {
    return sectionsOf(model).length ? "" : "This model has no other views."
  }

  viewToSave() {
    const look = this.look()
    return look === "gates" ? {view: "lens", options: {layer: this.stageName}} : {view: sectionOf(look)[0],
      options: this.options ?? {}}
  }

  look() {
    const names = sectionsOf(this.page.model)
    return names.includes(this.page.controls.look) ? this.page.controls.look : names[0]
  }

  async render(signal) {
    const names = sectionsOf(this.page.model), look = this.look()
    this.first = {key: "look", kind: "select", label: "Look at", options: names.map(name => [name, sectionOf(name)[1]]),
      value: names[0], hint: "The view shown below."}
    this.options = {}
    await (this[look] ?? this.pictures).call(this, signal, look)
  }

  async gates(signal) {
    const data = await this.fetchView("lens", {}, signal)
    const stages = data.stages.filter(about => about.shape.length === 2 && about.name.split(".").at(-1) in GATES &&
      about.values).map(about => new Stage(about, data))
    if (!stages.length) {
      this.controls([this.first])
      return this.showResult(element("p", {class: "empty"},
        "This model has no recurrent states, or the input is too long to show them. Follow shows every stage."))
    }
    const layers = [...new Set(stages.map(stage => stage.name.slice(0, stage.name.lastIndexOf("."))))]
    const layer = layers.includes(this.value("layer")) ? this.value("layer") : layers[0]
    const own = stages.filter(stage => stage.name.startsWith(`${layer}.`) &&
      !stage.name.slice(layer.length + 1).includes("."))
    const what = own.find(stage => stage.leaf === this.value("what")) ?? own.at(-1)
    const size = what.shape[1], unit = Math.min(size - 1, Math.max(0, this.number("unit") || 0))
    this.stageName = what.name
    this.controls([this.first,
      {key: "layer", kind: "select", label: "Layer", options: layers, value: layers[0],
        hint: "The recurrent layer, and the direction in which it reads."},
      {key: "what", kind: "select", label: "Matrix of", options: own.map(stage => [stage.leaf, GATES[stage.leaf]]),
        value: own.at(-1).leaf, hint: "The gate or state in the matrix: a row for each step, a column for each unit."},
      {key: "unit", kind: "slider", label: "Unit", min: 0, max: size - 1, step: 1, value: 0,
        hint: "The unit whose gates are drawn through time. You can also click into the matrix."}])
    const rows = what.rows(), times = rows.map((_, t) => t)
    const matrix = element("seq-matrix", {"data-name": "gates"})
    matrix.addEventListener("pick", ({detail}) => this.set({unit: detail.column}))
    queueMicrotask(() => matrix.show({values: what.grid(), rows, columns: [], scale: what.scale(),
      what: `${GATES[what.leaf]} of ${layer}`, words: ["", "unit"], picked: {row: null, column: unit}}))
    const curve = stage => ({name: GATES[stage.leaf], x: times,
      y: Array.from(times, t => stage.grid().data[t * size + unit])})
    this.showResult(section(`${capitalise(GATES[what.leaf])} of ${layer}`,
      "A row for each token, a column for each unit.", matrix),
      element("div", {class: "pair"},
        chart({title: `Gates of unit ${unit}`, labels: rows, series: own.filter(stage => !["c", "h", "g",
          "n"].includes(stage.leaf)).map(curve), yTitle: "0 is closed, 1 is open"}),
        chart({title: `States of unit ${unit}`, labels: rows, series: own.filter(stage => ["c", "h", "g",
          "n"].includes(stage.leaf)).map(curve)})))
  }

  async cells(signal) {
    this.options = {...(this.page.controls.layer ? {layer: this.page.controls.layer} : {}),
      ...(this.page.controls.unit ? {unit: Number(this.page.controls.unit)} : {}),
      ...(this.page.controls.pattern ? {pattern: this.page.controls.pattern} : {})}
    const data = await this.fetchView("cells", this.options, signal)
    this.controls([this.first,
      {key: "unit", kind: "number", label: "Unit", min: 0, max: 9999, value: data.unit,
        hint: "The unit that colours the text; if empty, the one that follows a property of the text best."},
      {key: "pattern", kind: "text", label: "Pattern", value: "", placeholder: "[aeiou]",
        hint: "A regular expression: find the units that follow its matches."}])
    const scale = scaleOf(data.values)
    this.showResult(section(`Unit ${data.unit} of ${data.layer}`,
      "Orange is positive, blue negative; point at a token to see the number.",
      colouredTokens(data.tokens, data.values, scale, {label: `the text coloured by unit ${data.unit}`})),
      data.followers.length ? section("Units that follow a property of the text",
        "Area under the ROC curve (1 and 0 are perfect, 0.5 is chance); correlation for the position in the line.",
        element("table", {}, element("tr", {}, ...["what", "layer", "unit",
          "score"].map(name => element("th", {scope: "col"}, name))), ...data.followers.map((each, k) =>
          element("tr", {}, element("td", {}, each.what), element("td", {}, each.layer),
            element("td", {}, button(String(each.unit), "Colour the text by this unit.",
            () => this.set({layer: each.layer, unit: each.unit}), {"data-key": `follower-${k}`})),
              element("td", {}, formatNumber(each.score)))))) : null)
  }

  async gradients(signal) {
    this.options = this.page.controls.position ? {position: this.number("position")} : {}
    const data = await this.fetchView("gradients", this.options, signal), place = data.position - 1
    this.controls([this.first])
    const back = data.norms.map(norms => norms.slice(0, place + 1))
    const series = data.layers.map((name, l) => ({name, x: back[l].map((_, t) => place - t).reverse(),
      y: back[l].map(norm => Math.log10(Math.max(norm, 1e-30))).reverse()}))
    this.showResult(
      section("Verdict", "The mean factor by which the gradient changes in one step back through time.",
        ...data.sentences.map((sentence, l) =>
        element("p", {class: `verdict ${data.verdicts[l] ?? ""}`}, sentence))),
      section("Position of the loss", "Choose the position whose loss is propagated back; the default is the last.",
        tokenButtons(data.places, place, k => this.set({position: k + 1}), {label: "positions", key: "place"})),
      chart({title: "Norm of the gradient of the loss", series, xTitle: "steps back from the loss",
        yTitle: "log10 of ‖dL/dh‖"}),
      ...data.pictures.slice(1).map(each => section(null, null, picture(each))))
  }

  async saliency(signal) {
    const methods = [["integrated", "integrated gradients"], ["gradient", "gradient times input"],
      ["leave-one-out", "leave one out"]]
    const method = this.page.controls.method ?? "integrated"
    this.options = {method, ...(this.page.controls.position ? {position: this.number("position")} : {})}
    const [data, lens] = await Promise.all([this.fetchView("saliency", this.options, signal),
      this.fetchView("lens", {}, signal)])
    this.controls([this.first, {key: "method", kind: "select", label: "Method", options: methods, value: "integrated",
      hint: "How the contribution of each token is computed."}])
    const sides = [["The source", data.source], ["Generated before", data.written_before]].filter(([, side]) => side)
    const scale = scaleOf(sides.flatMap(([, [, values]]) => values))
    const sum = sides.flatMap(([, [, values]]) => values).reduce((total, value) => total + value, 0)
    this.showResult(
      section("Position", "Choose the part of the answer to explain.",
        tokenButtons(lens.answered, data.position - 1, k => this.set({position: k + 1}),
          {label: "answers", key: "answer"})),
      ...sides.map(([name, [tokens, values]]) => section(name,
      "The contribution of each token to the log-probability: orange increases it, blue decreases it.",
        colouredTokens(tokens, values, scale, {label: `${name}, coloured by the contribution of each token`}))),
      section("The sum", null, element("p", {}, "The log-probability of ", element("bdi", {}, data.answer),
        ` is ${formatNumber(data.log_probability, 4)}. `,
        data.baseline === undefined || data.baseline === null ? `The contributions add up to ${formatNumber(sum, 4)}.`
          : `For an empty input it is ${formatNumber(data.baseline, 4)}; the contributions add up to `
            + `${formatNumber(sum, 4)} of a difference of ${formatNumber(data.log_probability - data.baseline, 4)} `
            + `(${data.steps} steps).`)))
  }

  async pictures(signal, look) {
    this.controls([this.first])
    const data = await this.fetchView(sectionOf(look)[0], {}, signal)
    this.showResult(section(capitalise(data.title), null, ...data.pictures.map(picture)))
  }
}

const sectionOf = name => SECTIONS[name] ?? [name, name.replaceAll("-", " ")]
const sectionsOf = model => [...Object.keys(SECTIONS).filter(name => model.views.includes(SECTIONS[name][0])),
  ...model.views.filter(view => !(view in SECTIONS) && !IN_OTHER_PANES.includes(view))]
