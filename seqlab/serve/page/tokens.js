// Tokens in a row: coloured by numbers, or there to be chosen from.
import {colourOf, css, inkOn} from "./palette.js"
import {element, shown} from "./element.js"

/** Running text, each token on the colour of its number; the number is told on pointing and to screen readers. */
export function coloured(names, values, scale, {label}) {
  const spans = names.map((name, k) => {
    const colour = colourOf(values[k], scale)
    const span = element("span", {class: "token", title: `${name}: ${shown(values[k], 4)}`,
      "data-value": String(values[k])}, name)
    span.style.background = css(colour)
    span.style.color = inkOn(colour)
    span.append(element("span", {class: "unseen"}, ` ${shown(values[k])} `))
    return span
  })
  return element("p", {class: "tokens", dir: "auto", role: "group", "aria-label": label}, ...spans)
}

/** Tokens as buttons, one of them chosen. */
export function choice(names, chosen, pick, {label, key}) {
  const buttons = names.map((name, k) => element("button", {
    type: "button", class: "token", "aria-pressed": String(k === chosen), "data-key": `${key}-${k}`,
      onclick: () => pick(k),
  }, element("bdi", {}, name)))
  return element("div", {class: "tokens", role: "group", "aria-label": label}, ...buttons)
}
