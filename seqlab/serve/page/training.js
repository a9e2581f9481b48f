// Training: the curves of a run, also while it is in progress, and the answer of the model at each checkpoint.
import * as api from "./api.js"
import {chart} from "./chart.js"
import {button, control} from "./control.js"
import {element, bdiText} from "./element.js"
import {Pane, capitalise, section} from "./pane.js"

const [PAUSE, MOST] = [2000, 600] // milliseconds between requests during a run; points of a curve
const NOT_CURVES = ["step", "seconds", "best", "validation"]

export class TrainingPane extends Pane {
  static unavailable(model) {
    return model.run ? "" : "There is no log of this model's training."
  }

  static needsInput = false

  viewToSave() {
    return {view: "training", options: {}}
  }

  disconnectedCallback() {
    super.disconnectedCallback()
    clearTimeout(this.timer)
  }

  async render(signal) {
    const name = this.page.model.base ?? this.page.model.name
    if (this.of !== name) Object.assign(this, {of: name, rows: [], next: 0})
    this.controls([])
    await this.fetchRows(signal)
    this.curves = element("div", {class: "charts"})
    this.state = element("p", {class: "hint", role: "status"})
    this.showResult(this.state, this.curves, this.checkpoints.length ? this.checkpointCard() : null)
    this.draw()
    this.poll(signal)
  }

  async fetchRows(signal) {
    const {rows, next, running, checkpoints} = await api.runs(this.of, this.next, signal)
    this.rows.push(...rows)
    Object.assign(this, {next, running, checkpoints: checkpoints ?? []})
  }

  /** While the run is in progress, request new lines of its log and draw them. */
  poll(signal) {
    clearTimeout(this.timer)
    if (!this.running || signal.aborted) return
    this.timer = setTimeout(async () => {
      const before = this.rows.length
      await this.fetchRows(signal).catch(() => {})
      if (this.rows.length > before || !this.running) this.draw()
      this.poll(signal)
    }, PAUSE)
  }

  draw() {
    const series = new Map()
    const add = (name, step, value) => {
      if (typeof value !== "number") return
      if (!series.has(name)) series.set(name, {name, x: [], y: []})
      series.get(name).x.push(step)
      series.get(name).y.push(value)
    }
    for (const row of this.rows) {
      for (const [name, value] of Object.entries(row)) if (!NOT_CURVES.includes(name)) add(name.replaceAll("_", " "),
        row.step, value)
      for (const [name, value] of Object.entries(row.validation ?? {})) add(`validation ${name.replaceAll("_", " ")}`,
        row.step, value)
    }
    const losses = ["loss", "validation loss"].filter(name => series.has(name)).map(name => thinOut(series.get(name)))
    const rest = [...series.values()].filter(({name}) => !["loss", "validation loss"].includes(name)).map(thinOut)
    const last = this.rows.at(-1)
    const whole = number => Math.round(number).toLocaleString("en")
    const state = this.running ? "Training is in progress" : "Training has ended"
    this.state.textContent = !last ? "The log is empty so far."
      : `${state}: step ${whole(last.step)}, ${whole(last.seconds ?? 0)} seconds.`
    this.curves.replaceChildren(...(losses.length ? [chart({title: "Loss", series: losses, xTitle: "step",
      yTitle: "nats"})] : []),
      ...rest.map(each => chart({title: capitalise(each.name), series: [each], xTitle: "step"})))
  }

  /** A slider through the checkpoints, and the answer of the model at the selected one. */
  checkpointCard() {
    const answerBox = element("div", {"aria-live": "polite"}), names = this.checkpoints
    const place = Math.min(names.length - 1, Number(this.page.controls.checkpoint ?? names.length - 1))
    const slider = control({key: "checkpoint", kind: "slider", label: "Checkpoint", min: 0, max: names.length - 1,
      step: 1, value: place, format: k => names[k],
      hint: "The model at an earlier step of the training, and its answer to the input above."},
        value => { this.page.controls.checkpoint = value; this.set({checkpoint: value}) })
    this.answer(names[place], answerBox)
    return section("Checkpoints", null, slider, answerBox)
  }

  async answer(checkpoint, box) {
    const model = `${this.of}@${checkpoint}`
    box.replaceChildren(element("p", {class: "hint"}, "Computing…"))
    try {
      const {outputs: [{output}]} = await api.predict({model, inputs: [this.page.payload]}, this.abort?.signal)
      box.replaceChildren(element("p", {class: "answer"}, element("small", {}, checkpoint), " ",
        bdiText(String(output))),
        button("Look inside this checkpoint", "Use it as the model in all panes.", () => this.page.use(model),
          {"data-key": "use"}))
    } catch (error) {
      if (error instanceof api.ServerError) box.replaceChildren(element("p", {class: "error"},
        `${capitalise(error.message)}. ${capitalise(error.hint ?? "")}`))
      else if (error.name !== "AbortError") throw error
    }
  }
}

/** At most MOST points, including the last. */
function thinOut({name, x, y}) {
  const step = Math.ceil(x.length / MOST), indices = x.map((_, k) => k).filter(k => (x.length - 1 - k) % step === 0)
  return {name, x: indices.map(k => x[k]), y: indices.map(k => y[k])}
}
