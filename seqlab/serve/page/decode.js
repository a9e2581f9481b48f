// Decode: the text as it is written, token by token, with what else could have come; any candidate can be forced.
import * as api from "./api.js"
import {button} from "./control.js"
import {element, percent, shown} from "./element.js"
import {Pane, section} from "./pane.js"

const [ASKED, SHOWN, PAUSE] = [50, 12, 550] // candidates drawn from and shown, milliseconds between steps

export class DecodePane extends Pane {
  static refuses(model) {
    const nothing = `A '${model.task}' model writes nothing token by token: it answers at once.`
    return ["lm", "translate", "caption"].includes(model.task) ? "" : nothing
  }

  static needsInput = false

  disconnectedCallback() {
    super.disconnectedCallback()
    this.pause()
  }

  async render(signal) {
    this.controls([
      {key: "temperature", kind: "slider", label: "Temperature", min: 0.1, max: 2, step: 0.05, value: 1,
        hint: "Below 1 the likely becomes likelier, above 1 all become more alike (E59)."},
      {key: "top_k", kind: "slider", label: "Top k", min: 0, max: 50, step: 1, value: 0,
        hint: "Only so many of the likeliest may come; 0 is all."},
      {key: "top_p", kind: "slider", label: "Top p", min: 0.05, max: 1, step: 0.05, value: 1,
        hint: "Only the likeliest that together reach this probability may come; 1 is all."},
      {key: "choose", kind: "select", label: "Play chooses", options: [["best", "the likeliest"],
        ["draw", "by chance"]], value: "best",
        hint: "What play and step take: the best candidate, or one drawn by its chance."},
      {key: "seed", kind: "number", label: "Seed", min: 0, max: 9999, value: 0,
        hint: "The same seed draws the same tokens."},
    ])
    const asked = this.key
    this.key = `${this.page.model.name} ${this.page.input}`
    if (asked && asked !== this.key && this.page.controls.written) return this.take([])
    this.said = await api.next({model: this.page.model.name, input: this.page.given, written: this.ids(),
      temperature: this.number("temperature"), top_k: this.number("top_k"), top_p: this.number("top_p"), most: ASKED},
        signal)
    this.saidAfter = this.value("written")
    this.fill(this.text(), this.candidates())
    if (this.playing) this.schedule()
  }

  ids() {
    return this.value("written").split(",").filter(Boolean).map(Number)
  }

  take(ids) {
    this.set({written: ids.join(",")})
  }

  text() {
    const {written, text, ended} = this.said, ids = this.ids()
    const own = written.slice(written.length - ids.length)
    return section("The text so far", "Choose a token to go back to before it.",
      element("div", {class: "tokens written", role: "group", "aria-label": "tokens written so far"},
        this.page.model.task === "lm" ? element("span", {class: "token plain given", dir: "auto"},
          this.page.input) : null,
        ...own.map(({piece}, k) => button(element("bdi", {}, piece), "Go back to before this token.",
        () => { this.pause(); this.take(ids.slice(0, k)) }, {class: "token", "data-key": `written-${k}`})),
        ended ? element("span", {class: "badge"}, "end") : element("span", {class: "cursor", "aria-hidden": "true"})),
      element("output", {class: "decoded", dir: "auto", "aria-live": "polite"}, text),
      element("p", {class: "row"},
        button(this.playing ? "Pause" : "Play", "Write on by itself, a token at a time, until the end.",
          () => this.playing ? this.pause(true) : this.play(), {class: "main", disabled: ended, "data-key": "play"}),
        button("Step", "Take one token.", () => { this.pause(); this.step() }, {disabled: ended, "data-key": "step"}),
        button("Back", "Take back the last token.", () => { this.pause(); this.take(ids.slice(0, -1)) },
          {disabled: !ids.length, "data-key": "back"}),
        button("Again", "Begin anew.", () => { this.pause(); this.take([]) },
          {disabled: !ids.length, "data-key": "again"})))
  }

  candidates() {
    const {candidates, entropy, ended} = this.said, ids = this.ids()
    if (ended) return section("What may come next", "The model has ended its text.")
    const bar = (share, kind) => {
      const made = element("i", {class: `bar ${kind}`})
      made.style.width = `${(100 * share).toFixed(1)}%`
      return element("td", {class: "track"}, made)
    }
    const rows = candidates.slice(0, SHOWN).map(({id, piece, probability, adjusted}) => element("tr",
      {class: adjusted ? "" : "cut"},
      element("th", {scope: "row"}, button(element("bdi", {}, piece), "Force this token.",
        () => { this.pause(); this.take([...ids, id]) }, {class: "token", "data-key": `candidate-${id}`,
        "data-id": id})),
      element("td", {"data-value": String(probability)}, percent(probability)), bar(probability, "plain"),
      element("td", {"data-adjusted": String(adjusted)}, adjusted ? percent(adjusted) : "cut"), bar(adjusted, "")))
    return section("What may come next",
      `Choose any to force it. Entropy ${shown(entropy / Math.LN2)} bits.`,
      element("table", {class: "candidates"}, element("tr", {},
        ...["token", "model", "", "with the sliders", ""].map(name => element("th", {scope: "col"}, name))), ...rows))
  }

  play() {
    this.playing = true
    this.step()
  }

  pause(redraw) {
    this.playing = false
    clearTimeout(this.timer)
    if (redraw) this.fill(this.text(), this.candidates())
  }

  schedule() {
    clearTimeout(this.timer)
    if (this.said.ended || this.ids().length >= 200) return this.pause(true)
    this.timer = setTimeout(() => this.step(), PAUSE)
  }

  step() {
    const {candidates, ended} = this.said, ids = this.ids()
    if (this.saidAfter !== this.value("written")) return // what comes after the last token is not known yet
    if (ended || !candidates.length) return this.pause(true)
    const chosen = this.value("choose") === "draw" ? drawn(candidates, this.number("seed"),
      ids.length) : candidates.reduce((best, each) => each.adjusted > best.adjusted ? each : best)
    this.take([...ids, chosen.id])
  }
}

/** One of the candidates by its adjusted chance; the same for the same seed and place. */
function drawn(candidates, seed, place) {
  let share = chance(seed * 7919 + place) * candidates.reduce((sum, each) => sum + each.adjusted, 0)
  return candidates.find(each => (share -= each.adjusted) <= 0 && each.adjusted > 0) ?? candidates[0]
}

/** A number between 0 and 1 from a whole number, as good as random (after Steele et al. 2014). */
function chance(state) {
  let bits = (state + 1) * 0x9e3779b9 | 0
  bits = Math.imul(bits ^ bits >>> 16, 0x21f0aaad)
  bits = Math.imul(bits ^ bits >>> 15, 0x735a2d97)
  return ((bits ^ bits >>> 15) >>> 0) / 2 ** 32
}
