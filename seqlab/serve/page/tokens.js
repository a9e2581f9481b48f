// Tokens in a row: coloured by numbers, or as buttons.
import {colourOf, css, inkOn} from "./palette.js"
import {element, formatNumber} from "./element.js"

/** Text with each token on the colour of its number; the number is in the tooltip and for screen readers. */
export function colouredTokens(names, values, scale, {label}) {
  const spans = names.map((name, k) => {
    const colour = colourOf(values[k], scale)
    const span = element("span", {class: "token", title: `${name}: ${formatNumber(values[k], 4)}`,
      "data-value": String(values[k])}, name)
    span.style.background = css(colour)
    span.style.color = inkOn(colour)
    span.append(element("span", {class: "unseen"}, ` ${formatNumber(values[k])} `))
    return span
  })
  return element("p", {class: "tokens", dir: "auto", role: "group", "aria-label": label}, ...spans)
}

/** Tokens as buttons, of which one is selected. */
export function tokenButtons(names, selected, onPick, {label, key}) {
  const buttons = names.map((name, k) => element("button", {
    type: "button", class: "token", "aria-pressed": String(k === selected), "data-key": `${key}-${k}`,
      onclick: () => onPick(k),
  }, element("bdi", {}, name)))
  return element("div", {class: "tokens", role: "group", "aria-label": label}, ...buttons)
}
