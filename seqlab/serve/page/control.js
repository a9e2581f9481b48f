// Controls: each has a label, a value, and a hint that explains it.
import {element, uniqueId} from "./element.js"

/** A control from its description: {key, kind, label, hint, value, ...}. `onChange(value)` is called with a string.
 *  The element has `setValue(value)`, to show a value that was set elsewhere. */
export function control(description, onChange) {
  const id = uniqueId(description.key), hint = element("small", {id: `${id}-hint`}, description.hint)
  const input = KINDS[description.kind](description, onChange)
  input.id = id
  input.dataset.key = `control-${description.key}`
  input.setAttribute("aria-describedby", hint.id)
  const output = description.kind === "slider" ? element("output", {htmlFor: id}) : null
  const showValue = value => { if (output) output.value = description.format?.(Number(value)) ?? value }
  input.addEventListener("input", () => showValue(input.value))
  const container = element("div", {class: `control ${description.kind}`},
    element("label", {htmlFor: id}, description.label, output && " ", output), input, hint)
  container.setValue = value => {
    if (description.kind === "check") input.checked = value === "1"
    else if (description.kind === "select") input.value = value
    else if (input.value !== value && input !== document.activeElement) input.value = value
    showValue(value)
  }
  container.setValue(String(description.value))
  return container
}

const KINDS = {
  slider: (description, onChange) => element("input", {
    type: "range", min: description.min, max: description.max, step: description.step, value: description.value,
    oninput: event => onChange(event.target.value),
  }),
  number: (description, onChange) => element("input", {
    type: "number", min: description.min, max: description.max, step: description.step ?? 1, value: description.value,
    onchange: event => onChange(event.target.value),
  }),
  text: (description, onChange) => element("input", {
    type: "text", dir: "auto", spellcheck: false, value: description.value, placeholder: description.placeholder ?? "",
    onchange: event => onChange(event.target.value),
  }),
  select: (description, onChange) => element("select", {onchange: event => onChange(event.target.value)},
    ...description.options.map(option => {
      const [value, label] = Array.isArray(option) ? option : [option, option]
      return element("option", {value}, label)
    })),
  check: (description, onChange) => element("input", {type: "checkbox",
    onchange: event => onChange(event.target.checked ? "1" : "0")}),
}

/** A button with a tooltip. */
export const button = (label, hint, onClick, more = {}) =>
  element("button", {type: "button", title: hint, "aria-description": hint, onclick: onClick, ...more}, label)
