// A pane: its controls, its result, and the messages while it waits or after an error.
import * as api from "./api.js"
import {control} from "./control.js"
import {element} from "./element.js"

/** Panes extend this with `render(signal)`, and with a static `unavailable(model)` that returns why they do not apply
 *  to a model. `page` is {model, input, payload (what is sent for the input), controls, models, set, ...}. */
export class Pane extends HTMLElement {
  /** Why this pane does not apply to a model; "" if it does. */
  static unavailable() { return "" }

  /** The view that "Save this view" downloads: {view, options}, or null. */
  viewToSave() { return null }

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

  /** Show the state of the page; requests in progress for the state before are aborted. */
  async update(page) {
    this.stop()
    this.page = page
    const abort = this.abort = new AbortController()
    const refusal = this.constructor.unavailable(page.model)
    if (refusal) {
      this.controls([])
      return this.showResult(element("div", {class: "empty"}, element("p", {}, refusal), page.listOtherPanes()))
    }
    if (this.constructor.needsInput !== false && !page.input) {
      this.controls([])
      return this.showResult(element("p", {class: "empty"}, "Type an input above, or choose an example."))
    }
    const slow = setTimeout(() => this.busy(true), 120)
    try {
      await this.render(abort.signal)
    } catch (error) {
      if (error.name === "AbortError" || abort.signal.aborted) return
      if (!(error instanceof api.ServerError)) throw error
      this.showError(error)
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
    this.wait.textContent = waiting ? "Computing…" : ""
  }

  showError(error) {
    this.page.handleError(error)
    this.showResult(element("div", {class: "empty error", role: "alert"},
      element("p", {dir: "auto"}, capitalise(error.message)), error.hint ? element("p", {class: "hint", dir: "auto"},
        capitalise(error.hint)) : null))
  }

  /** Request a view of the selected model for the input. */
  fetchView(view, options = {}, signal = this.abort?.signal) {
    return api.explain(view, {model: this.page.model.name, input: this.page.payload, options}, signal)
  }

  /** The value of a control: from the address, or its default. */
  value(key) {
    const description = this.descriptions?.find(each => each.key === key)
    return this.page.controls[key] ?? String(description?.value ?? "")
  }

  number(key) {
    return Number(this.value(key))
  }

  set(controls, options) {
    this.page.set(controls, options)
  }

  /** Show these controls. They are rebuilt only if their descriptions change, so that a slider can be dragged. */
  controls(descriptions) {
    const same = JSON.stringify(descriptions) === JSON.stringify(this.descriptions)
    this.descriptions = descriptions
    if (!same)
      this.keepFocus(this.bar, () => this.bar.replaceChildren(...descriptions.map(description => {
        let timer
        return control(description, value => {
          clearTimeout(timer)
          timer = setTimeout(() => this.set({[description.key]: value}), description.kind === "slider" ? 120 : 0)
        })
      })))
    this.bar.hidden = !descriptions.length
    descriptions.forEach((description, k) => this.bar.children[k].setValue(this.value(description.key)))
  }

  /** Replace the result; the focus stays on the element with the same key. */
  showResult(...nodes) {
    this.keepFocus(this.result, () => this.result.replaceChildren(...nodes.flat().filter(Boolean)))
  }

  keepFocus(where, change) {
    const key = where.contains(document.activeElement) ? document.activeElement.dataset.key : null
    change()
    if (key) where.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({preventScroll: true})
  }
}

export const capitalise = text => text.charAt(0).toUpperCase() + text.slice(1)

/** A card with a heading, an explanation and its content. */
export const section = (title, about, ...children) =>
  element("section", {class: "card"}, title && element("h3", {}, title),
    about && element("p", {class: "hint"}, about), ...children)
