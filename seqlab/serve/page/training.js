// Training: the curves of a run, also while it is under way, and what the model said at each checkpoint that was kept.
import * as api from "./api.js"
import {chart} from "./chart.js"
import {button, control} from "./control.js"
import {element, quoted} from "./element.js"
import {Pane, capital, section} from "./pane.js"

const [PAUSE, MOST] = [2000, 600] // milliseconds between questions while a run goes on; points of a curve
const APART = ["step", "seconds", "best", "validation"]

export class TrainingPane extends Pane {
  static refuses(model) {
    return model.run ? "" : "There is no record of this model's training beside it."
  }

  static needsInput = false

  saved() {
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
    await this.more(signal)
    this.curves = element("div", {class: "charts"})
    this.state = element("p", {class: "hint", role: "status"})
    this.fill(this.state, this.curves, this.checkpoints.length ? this.kept() : null)
    this.draw()
    this.again(signal)
  }

  async more(signal) {
    const {rows, next, running, checkpoints} = await api.runs(this.of, this.next, signal)
    this.rows.push(...rows)
    Object.assign(this, {next, running, checkpoints: checkpoints ?? []})
  }

  /** While the run goes on, ask again and draw what came. */
  again(signal) {
    clearTimeout(this.timer)
    if (!this.running || signal.aborted) return
    this.timer = setTimeout(async () => {
      const before = this.rows.length
      await this.more(signal).catch(() => {})
      if (this.rows.length > before || !this.running) this.draw()
      this.again(signal)
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
      for (const [name, value] of Object.entries(row)) if (!APART.includes(name)) add(name.replaceAll("_", " "),
        row.step, value)
      for (const [name, value] of Object.entries(row.validation ?? {})) add(`validation ${name.replaceAll("_", " ")}`,
        row.step, value)
    }
    const losses = ["loss", "validation loss"].filter(name => series.has(name)).map(name => thinned(series.get(name)))
    const rest = [...series.values()].filter(({name}) => !["loss", "validation loss"].includes(name)).map(thinned)
    const last = this.rows.at(-1)
    const whole = number => Math.round(number).toLocaleString("en")
    const state = this.running ? "Training goes on" : "Training has ended"
    this.state.textContent = !last ? "Nothing was logged yet."
      : `${state}: step ${whole(last.step)}, ${whole(last.seconds ?? 0)} seconds.`
    this.curves.replaceChildren(...(losses.length ? [chart({title: "Loss", series: losses, xTitle: "step",
      yTitle: "nats"})] : []),
      ...rest.map(each => chart({title: capital(each.name), series: [each], xTitle: "step"})))
  }

  /** A slider through the checkpoints, and what the model said of the input at each. */
  kept() {
    const said = element("div", {"aria-live": "polite"}), names = this.checkpoints
    const place = Math.min(names.length - 1, Number(this.page.controls.checkpoint ?? names.length - 1))
    const slider = control({key: "checkpoint", kind: "slider", label: "Checkpoint", min: 0, max: names.length - 1,
      step: 1, value: place, said: k => names[k],
      hint: "A state of the model that was kept in training: what it answers to the input above."},
        value => { this.page.controls.checkpoint = value; this.set({checkpoint: value}) })
    this.answer(names[place], said)
    return section("Checkpoints", null, slider, said)
  }

  async answer(checkpoint, box) {
    const model = `${this.of}@${checkpoint}`
    box.replaceChildren(element("p", {class: "hint"}, "Asking that checkpoint…"))
    try {
      const {outputs: [{output}]} = await api.predict({model, inputs: [this.page.given]}, this.abort?.signal)
      box.replaceChildren(element("p", {class: "answer"}, element("small", {}, checkpoint), " ",
        quoted(String(output))),
        button("Look inside this checkpoint", "Use it as the model in all panes.", () => this.page.use(model),
          {"data-key": "use"}))
    } catch (error) {
      if (error instanceof api.Refusal) box.replaceChildren(element("p", {class: "error"},
        `${capital(error.message)}. ${capital(error.hint ?? "")}`))
      else if (error.name !== "AbortError") throw error
    }
  }
}

/** At most so many points, the last among them. */
function thinned({name, x, y}) {
  const step = Math.ceil(x.length / MOST), kept = x.map((_, k) => k).filter(k => (x.length - 1 - k) % step === 0)
  return {name, x: kept.map(k => x[k]), y: kept.map(k => y[k])}
}
