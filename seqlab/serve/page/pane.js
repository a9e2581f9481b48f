// A pane: controls that stay, a result that is drawn anew, and what to say while it waits or when it cannot.
import * as api from "./api.js"
import {control} from "./control.js"
import {element} from "./element.js"

/** Panes extend this with `render(signal)`, and say with static `refuses(model)` for which models there is nothing to
 *  see. `page` is {model, input, given (what is sent for it), controls, models, set, ...}. */
export class Pane extends HTMLElement {
  /** Why this pane has nothing to show for a model; empty where it has. */
  static refuses() { return "" }

  /** What "save this view" saves: {view, options}, or null. */
  saved() { return null }

  connectedCallback() {
    if (this.result) return
    this.bar = element("div", {class: "controls"})
    this.result = element("div", {class: "result"})
    this.wait = element("p", {class: "waiting", role: "status"})
    this.append(this.bar, this.wait, this.result)
  }

  disconnectedCallback() {
    this.stop()
  }

  /** Show the state of the page; what was asked for before and is still under way is dropped. */
  async update(page) {
    this.stop()
    this.page = page
    const abort = this.abort = new AbortController()
    const refusal = this.constructor.refuses(page.model)
    if (refusal) {
      this.controls([])
      return this.fill(element("div", {class: "empty"}, element("p", {}, refusal), page.others()))
    }
    if (this.constructor.needsInput !== false && !page.input) {
      this.controls([])
      return this.fill(element("p", {class: "empty"}, "Type an input above, or choose an example, to look at."))
    }
    const slow = setTimeout(() => this.busy(true), 120)
    try {
      await this.render(abort.signal)
    } catch (error) {
      if (error.name === "AbortError" || abort.signal.aborted) return
      if (!(error instanceof api.Refusal)) throw error
      this.refused(error)
    } finally {
      clearTimeout(slow)
      if (this.abort === abort) this.busy(false)
    }
  }

  stop() {
    this.abort?.abort()
    this.abort = null
  }

  busy(waiting) {
    this.toggleAttribute("busy", waiting)
    this.wait.textContent = waiting ? "Asking the model…" : ""
  }

  refused(error) {
    this.page.denied(error)
    this.fill(element("div", {class: "empty error", role: "alert"},
      element("p", {dir: "auto"}, capital(error.message)), error.hint ? element("p", {class: "hint", dir: "auto"},
        capital(error.hint)) : null))
  }

  /** A view of the chosen model at work on the input. */
  ask(view, options = {}, signal = this.abort?.signal) {
    return api.explain(view, {model: this.page.model.name, input: this.page.given, options}, signal)
  }

  /** The value of a control, from the address or as it was described. */
  value(key) {
    return this.page.controls[key] ?? String(this.described?.find(about => about.key === key)?.value ?? "")
  }

  number(key) {
    return Number(this.value(key))
  }

  set(controls, options) {
    this.page.set(controls, options)
  }

  /** The controls of the pane. They are built once for each description, so that a slider stays under the finger. */
  controls(described) {
    const same = JSON.stringify(described) === JSON.stringify(this.described)
    this.described = described
    if (!same)
      this.keep(this.bar, () => this.bar.replaceChildren(...described.map(about => {
        let timer
        return control(about, value => {
          clearTimeout(timer)
          timer = setTimeout(() => this.set({[about.key]: value}), about.kind === "slider" ? 120 : 0)
        })
      })))
    this.bar.hidden = !described.length
    described.forEach((about, k) => this.bar.children[k].put(this.value(about.key)))
  }

  /** The result, drawn anew; the focus stays on the element with the same key. */
  fill(...nodes) {
    this.keep(this.result, () => this.result.replaceChildren(...nodes.flat().filter(Boolean)))
  }

  keep(where, change) {
    const key = where.contains(document.activeElement) ? document.activeElement.dataset.key : null
    change()
    if (key) where.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({preventScroll: true})
  }
}

export const capital = text => text.charAt(0).toUpperCase() + text.slice(1)

/** A heading, a sentence, and what belongs to them. */
export const section = (title, about, ...children) =>
  element("section", {class: "card"}, title && element("h3", {}, title),
    about && element("p", {class: "hint"}, about), ...children)
