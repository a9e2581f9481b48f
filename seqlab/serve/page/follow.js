// Follow: an input through the whole model, stage by stage, down to one number and its equation.
import * as api from "./api.js"
import {bars} from "./chart.js"
import {button} from "./control.js"
import {element, formatNumber} from "./element.js"
import {formula} from "./formula.js"
import "./matrix.js"
import {thumbnail} from "./matrix.js"
import {Pane, capitalise, section} from "./pane.js"
import {Stage} from "./stage.js"
import {tokenButtons} from "./tokens.js"
import * as trace from "./trace.js"

const SIDES = {encoder: "Encoder", decoder: "Decoder", pooling: "Pooling", answer: "Answer"}

export class FollowPane extends Pane {
  static unavailable(model) {
    const nothing = "This model has no answer in tokens or labels to follow stage by stage."
    return model.views.includes("lens") ? "" : nothing
  }

  viewToSave() {
    return {view: "lens", options: this.page.controls.stage ? {layer: this.page.controls.stage} : {}}
  }

  async render(signal) {
    const data = await this.fetchView("lens", {}, signal)
    if (this.data !== data) {
      this.data = data
      this.stages = data.stages.map(about => new Stage(about, data))
    }
    const stage = this.stages.find(each => each.name === this.value("stage"))
      ?? this.stages.find(each => each.leaf === "weights") ?? this.stages.find(each => each.leaf === "h") ??
        this.stages[0]
    if (!stage.data) {
      const body = {model: this.page.model.name, input: this.page.payload, options: {}}
      this.trace = this.traceOf === data ? this.trace : trace.parse(await api.file("lens", body, "trace", signal))
      this.traceOf = data
      stage.fill(this.trace.get(stage.name))
    }
    const head = Math.min(stage.heads - 1, Math.max(0, (Number(this.value("head")) || 1) - 1))
    this.controls([])
    this.showResult(this.overview(),
      element("div", {class: "road"}, this.outline(stage), this.stageCard(stage, head, signal)))
  }

  /** The tokens read, the answer, and the probabilities of one position. */
  overview() {
    const {source, written, answered, likeliest} = this.data
    const place = Math.min(answered.length, Math.max(1, Number(this.value("position")) || answered.length)) - 1
    const reads = source.length ? source : written
    return section("From input to answer",
      "The tokens that the model reads, and its answer. Choose a part of the answer to see its alternatives.",
      element("div", {class: "whole"},
        element("div", {}, element("h4", {}, "reads"), element("p", {class: "tokens", dir: "auto"},
          ...reads.map(token => element("span", {class: "token plain"}, token)))),
        element("div", {}, element("h4", {}, source.length ? "answers" : "is followed by"),
          tokenButtons(answered, place, k => this.set({position: k + 1}), {label: "answers", key: "answer"})),
        element("div", {}, element("h4", {}, `at ${place + 1}: `, element("bdi", {}, answered[place])),
          bars(likeliest[place].map(({answer, probability}) => [answer, probability]),
            {label: "the most probable answers and their probabilities", limit: 1}))))
  }

  /** All stages in order; the stages of a block can be unfolded. */
  outline(chosen) {
    const nav = element("nav", {class: "outline", "aria-label": "stages of the model"})
    let side = null, block, list = nav
    for (const stage of this.stages) {
      if (stage.side !== side) {
        nav.append(element("h4", {}, SIDES[stage.side] ?? capitalise(stage.side)))
        side = stage.side
        block = null
        list = nav
      }
      if (stage.block !== block) {
        block = stage.block
        if (block === null) list = nav
        else {
          const open = chosen.side === side && chosen.block === block
          const details = element("details", {open}, element("summary", {"data-key": `block-${side}-${block}`},
            `Block ${block + 1}`,
            element("small", {}, ` ${this.stages.filter(each => each.side === side && each.block === block).length}`)))
          nav.append(details)
          list = details
        }
      }
      list.append(this.stageButton(stage, stage === chosen))
    }
    return nav
  }

  stageButton(stage, chosen) {
    const words = element("span", {}, stage.title, stage.inside ? element("small", {}, ` ${stage.inside}`) : null)
    return element("button", {type: "button", class: "stage", "aria-current": chosen ? "step" : null,
      "data-key": `stage-${stage.name}`,
      title: `${stage.name}: ${stage.shape.join(" × ")} numbers, mean ${formatNumber(stage.about.mean)}`,
        onclick: () => this.set({stage: stage.name, cell: "", head: ""})},
    stage.data ? thumbnail(stage.grid(0), stage.scale(), {width: 56, height: 20}) : element("i",
      {class: "thumbnail"}), words)
  }

  /** One stage: its numbers, and the equation of the selected one. */
  stageCard(stage, head, signal) {
    const values = stage.grid(head), at = this.stages.indexOf(stage)
    const picked = this.picked(values, stage.leaf)
    const matrix = element("seq-matrix", {"data-name": "stage"})
    const equation = element("div", {class: "equation", "aria-live": "polite"},
      element("p", {class: "hint"}, "Computing the equation…"))
    matrix.addEventListener("pick", ({detail}) => this.set({cell: `${detail.row},${detail.column}`}))
    const step = (to, label, hint) => button(label, hint, () =>
      this.set({stage: this.stages[to].name, cell: "", head: ""}), {disabled: !this.stages[to], "data-key": label})
    const shape = stage.shape.join(" × ")
    queueMicrotask(() => matrix.show({values, rows: stage.rows(), columns: stage.columns(), scale: stage.scale(),
      picked,
      what: `${stage.title}, ${stage.name}`, words: stage.columns().length ? ["from", "at"] : ["", "feature"]}))
    this.explain(stage, head, picked, equation, signal)
    return element("div", {class: "card stage-card"},
      element("div", {class: "row spread"}, element("h3", {}, capitalise(stage.title)), element("span", {class: "row"},
        step(at - 1, "← before", "The previous stage."),
        step(at + 1, "after →", "The next stage."))),
      element("p", {class: "hint"}, element("code", {}, stage.name),
        ` ${shape} numbers; mean ${formatNumber(stage.about.mean)}, deviation ${formatNumber(stage.about.deviation)}, `
        + `from ${formatNumber(stage.about.least)} to ${formatNumber(stage.about.most)}.`,
          stage.rounded ? " A long input: numbers to three digits." : "",
      " Choose a cell to see the equation with its numbers."), this.headButtons(stage, head), matrix, equation)
  }

  /** Buttons to choose a head. */
  headButtons(stage, head) {
    if (stage.heads === 1) return null
    const names = Array.from({length: stage.heads}, (_, k) => String(k + 1))
    return element("div", {class: "row"}, element("small", {}, "Head"),
      tokenButtons(names, head, k => this.set({head: k + 1, cell: ""}), {label: "head", key: "head"}))
  }

  /** The cell in the address, or that of the largest number. */
  picked(values) {
    const [row, column] = this.value("cell").split(",").map(Number)
    if (this.value("cell") && row < values.rows && column < values.columns) return {row, column}
    let best = 0
    values.data.forEach((value, place) => { if (Math.abs(value) > Math.abs(values.data[best])) best = place })
    return {row: Math.floor(best / values.columns), column: best % values.columns}
  }

  async explain(stage, head, {row, column}, box, signal) {
    const cell = [...(stage.shape.length === 3 ? [head] : []), row, ...(stage.shape.length > 1 ? [column] : [])]
    try {
      box.replaceChildren(formula(await this.fetchView("number", {layer: stage.name, cell: cell.join(",")}, signal)))
    } catch (error) {
      if (!(error instanceof api.ServerError)) { if (error.name !== "AbortError") throw error }
      else box.replaceChildren(element("p", {class: "hint"},
        `${capitalise(error.message)}. ${capitalise(error.hint ?? "")}`))
    }
  }
}

