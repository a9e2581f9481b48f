// A picture drawn by the server: parsed as SVG, without its styles, and inserted into the page.
import {element} from "./element.js"

/** A figure of {title, svg}; its colours come from the style of the page. */
export function picture({title, svg}) {
  // The page's security policy forbids inline styles, even while parsing: remove them; page.css has the same rules.
  const markup = svg.replace(/<style>[^<]*<\/style>/g, "").replaceAll(' style="image-rendering:pixelated"',
    ' class="pixelated"')
  const parsed = new DOMParser().parseFromString(markup, "image/svg+xml").documentElement
  for (const part of [...parsed.querySelectorAll("script, style, foreignObject")]) part.remove()
  const figure = document.importNode(parsed, true)
  figure.setAttribute("role", "img")
  figure.setAttribute("aria-label", title)
  return element("figure", {}, title ? element("figcaption", {dir: "auto"}, title) : null,
    element("div", {class: "wide"}, figure))
}
