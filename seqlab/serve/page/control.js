// Controls: each has a name, a value, and a plain sentence that says what it does.
import {element, fresh} from "./element.js"

/** One control from its description: {key, kind, label, hint, value, ...}. `changed(value)` is called with a string.
 *  The element has `put(value)`, which shows a value that came from elsewhere. */
export function control(about, changed) {
  const id = fresh(about.key), hint = element("small", {id: `${id}-hint`}, about.hint)
  const input = KINDS[about.kind](about, changed)
  input.id = id
  input.dataset.key = `control-${about.key}`
  input.setAttribute("aria-describedby", hint.id)
  const told = about.kind === "slider" ? element("output", {htmlFor: id}) : null
  const tell = value => { if (told) told.value = about.said?.(Number(value)) ?? value }
  input.addEventListener("input", () => tell(input.value))
  const whole = element("div", {class: `control ${about.kind}`},
    element("label", {htmlFor: id}, about.label, told && " ", told), input, hint)
  whole.put = value => {
    if (about.kind === "check") input.checked = value === "1"
    else if (input.value !== value && input !== document.activeElement || about.kind === "select") input.value = value
    tell(value)
  }
  whole.put(String(about.value))
  return whole
}

const KINDS = {
  slider: (about, changed) => element("input", {
    type: "range", min: about.min, max: about.max, step: about.step, value: about.value,
    oninput: event => changed(event.target.value),
  }),
  number: (about, changed) => element("input", {
    type: "number", min: about.min, max: about.max, step: about.step ?? 1, value: about.value,
    onchange: event => changed(event.target.value),
  }),
  text: (about, changed) => element("input", {
    type: "text", dir: "auto", spellcheck: false, value: about.value, placeholder: about.placeholder ?? "",
    onchange: event => changed(event.target.value),
  }),
  select: (about, changed) => element("select", {onchange: event => changed(event.target.value)},
    ...about.options.map(option => {
      const [value, label] = Array.isArray(option) ? option : [option, option]
      return element("option", {value}, label)
    })),
  check: (about, changed) => element("input", {type: "checkbox",
    onchange: event => changed(event.target.checked ? "1" : "0")}),
}

/** A button with a sentence for whoever rests on it. */
export const button = (label, hint, press, more = {}) =>
  element("button", {type: "button", title: hint, "aria-description": hint, onclick: press, ...more}, label)
