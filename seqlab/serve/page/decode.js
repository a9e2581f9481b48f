// Decode: an answer generated token by token, with the candidates of each step; any candidate can be forced.
import * as api from "./api.js"
import {button} from "./control.js"
import {element, percent, formatNumber} from "./element.js"
import {Pane, section} from "./pane.js"

const [NUM_CANDIDATES, NUM_SHOWN, PAUSE] = [50, 12, 550] // candidates requested and shown, milliseconds between steps

export class DecodePane extends Pane {
  static unavailable(model) {
    const nothing = `A '${model.task}' model does not generate token by token.`
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
        hint: "Divides the logits: below 1 the distribution is sharper, above 1 flatter (E59)."},
      {key: "top_k", kind: "slider", label: "Top k", min: 0, max: 50, step: 1, value: 0,
        hint: "Keep only the k most probable tokens; 0 keeps all."},
      {key: "top_p", kind: "slider", label: "Top p", min: 0.05, max: 1, step: 0.05, value: 1,
        hint: "Keep only the most probable tokens whose probabilities add up to p; 1 keeps all."},
      {key: "choose", kind: "select", label: "Play takes", options: [["best", "the most probable token"],
        ["draw", "a random token"]], value: "best",
        hint: "Which token Play and Step take: the most probable one, or one sampled by its probability."},
      {key: "seed", kind: "number", label: "Seed", min: 0, max: 9999, value: 0,
        hint: "The same seed samples the same tokens."},
    ])
    const oldKey = this.key
    this.key = `${this.page.model.name} ${this.page.input}`
    if (oldKey && oldKey !== this.key && this.page.controls.written) return this.take([])
    this.next = await api.next({model: this.page.model.name, input: this.page.payload, written: this.ids(),
      temperature: this.number("temperature"), top_k: this.number("top_k"), top_p: this.number("top_p"),
      most: NUM_CANDIDATES}, signal)
    this.nextAfter = this.value("written")
    this.showResult(this.text(), this.candidates())
    if (this.playing) this.schedule()
  }

  ids() {
    return this.value("written").split(",").filter(Boolean).map(Number)
  }

  take(ids) {
    this.set({written: ids.join(",")})
  }

  text() {
    const {written, text, ended} = this.next, ids = this.ids()
    const own = written.slice(written.length - ids.length)
    return section("The text so far", "Choose a token to remove it and all after it.",
      element("div", {class: "tokens written", role: "group", "aria-label": "tokens generated so far"},
        this.page.model.task === "lm" ? element("span", {class: "token plain prompt", dir: "auto"},
          this.page.input) : null,
        ...own.map(({piece}, k) => button(element("bdi", {}, piece), "Remove this token and all after it.",
        () => { this.pause(); this.take(ids.slice(0, k)) }, {class: "token", "data-key": `written-${k}`})),
        ended ? element("span", {class: "badge"}, "end") : element("span", {class: "cursor", "aria-hidden": "true"})),
      element("output", {class: "decoded", dir: "auto", "aria-live": "polite"}, text),
      element("p", {class: "row"},
        button(this.playing ? "Pause" : "Play", "Generate token by token until the end.",
          () => this.playing ? this.pause(true) : this.play(), {class: "main", disabled: ended, "data-key": "play"}),
        button("Step", "Generate one token.", () => { this.pause(); this.step() },
          {disabled: ended, "data-key": "step"}),
        button("Back", "Remove the last token.", () => { this.pause(); this.take(ids.slice(0, -1)) },
          {disabled: !ids.length, "data-key": "back"}),
        button("Restart", "Remove all tokens.", () => { this.pause(); this.take([]) },
          {disabled: !ids.length, "data-key": "again"})))
  }

  candidates() {
    const {candidates, entropy, ended} = this.next, ids = this.ids()
    if (ended) return section("Next token", "The answer is complete.")
    const bar = (share, kind) => {
      const node = element("i", {class: `bar ${kind}`})
      node.style.width = `${(100 * share).toFixed(1)}%`
      return element("td", {class: "track"}, node)
    }
    const rows = candidates.slice(0, NUM_SHOWN).map(({id, piece, probability, adjusted}) => element("tr",
      {class: adjusted ? "" : "cut"},
      element("th", {scope: "row"}, button(element("bdi", {}, piece), "Force this token.",
        () => { this.pause(); this.take([...ids, id]) }, {class: "token", "data-key": `candidate-${id}`,
        "data-id": id})),
      element("td", {"data-value": String(probability)}, percent(probability)), bar(probability, "plain"),
      element("td", {"data-adjusted": String(adjusted)}, adjusted ? percent(adjusted) : "cut"), bar(adjusted, "")))
    return section("Next token", `Choose a token to force it. Entropy: ${formatNumber(entropy)} nats, as for `
      + `${formatNumber(Math.exp(entropy))} equally probable tokens.`,
      element("table", {class: "candidates"}, element("tr", {},
        ...["token", "model", "", "after the sliders", ""].map(name => element("th", {scope: "col"}, name))), ...rows))
  }

  play() {
    this.playing = true
    this.step()
  }

  pause(redraw) {
    this.playing = false
    clearTimeout(this.timer)
    if (redraw) this.showResult(this.text(), this.candidates())
  }

  schedule() {
    clearTimeout(this.timer)
    if (this.next.ended || this.ids().length >= 200) return this.pause(true)
    this.timer = setTimeout(() => this.step(), PAUSE)
  }

  step() {
    const {candidates, ended} = this.next, ids = this.ids()
    if (this.nextAfter !== this.value("written")) return // the candidates after the last token have not arrived yet
    if (ended || !candidates.length) return this.pause(true)
    const chosen = this.value("choose") === "draw" ? sample(candidates, this.number("seed"),
      ids.length) : candidates.reduce((best, each) => each.adjusted > best.adjusted ? each : best)
    this.take([...ids, chosen.id])
  }
}

/** Sample a candidate by its adjusted probability; the same seed and place give the same one. */
function sample(candidates, seed, place) {
  let share = randomNumber(seed * 7919 + place) * candidates.reduce((sum, each) => sum + each.adjusted, 0)
  return candidates.find(each => (share -= each.adjusted) <= 0 && each.adjusted > 0) ?? candidates[0]
}

/** A pseudo-random number between 0 and 1 from an integer (after Steele et al. 2014). */
function randomNumber(state) {
  let bits = (state + 1) * 0x9e3779b9 | 0
  bits = Math.imul(bits ^ bits >>> 16, 0x21f0aaad)
  bits = Math.imul(bits ^ bits >>> 15, 0x735a2d97)
  return ((bits ^ bits >>> 15) >>> 0) / 2 ** 32
}
