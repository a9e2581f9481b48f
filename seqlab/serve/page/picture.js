// A picture that the server drew: parsed as SVG, without its styles, and put into the page as it is.
import {element} from "./element.js"

/** A figure of {title, svg}; its colours by role come from the page's own style. */
export function picture({title, svg}) {
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement
  for (const part of [...parsed.querySelectorAll("script, style, foreignObject")]) part.remove()
  for (const part of [parsed, ...parsed.querySelectorAll("*")])
    for (const {name, value} of [...part.attributes]) {
      if (name === "style" && value.includes("pixelated")) part.setAttribute("class", "pixelated")
      if (name === "style" || name.startsWith("on")) part.removeAttribute(name)
    }
  const drawn = document.importNode(parsed, true)
  drawn.setAttribute("role", "img")
  drawn.setAttribute("aria-label", title)
  return element("figure", {}, title ? element("figcaption", {dir: "auto"}, title) : null, element("div", {class: "wide"}, drawn))
}
