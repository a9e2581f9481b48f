// A picture that the server drew: parsed as SVG, without its styles, and put into the page as it is.
import {element} from "./element.js"

/** A figure of {title, svg}; its colours by role come from the page's own style. */
export function picture({title, svg}) {
  // The page's policy forbids styles in markup, even while it is parsed: they go before, and page.css has the same.
  const bare = svg.replace(/<style>[^<]*<\/style>/g, "").replaceAll(' style="image-rendering:pixelated"',
    ' class="pixelated"')
  const parsed = new DOMParser().parseFromString(bare, "image/svg+xml").documentElement
  for (const part of [...parsed.querySelectorAll("script, style, foreignObject")]) part.remove()
  const drawn = document.importNode(parsed, true)
  drawn.setAttribute("role", "img")
  drawn.setAttribute("aria-label", title)
  return element("figure", {}, title ? element("figcaption", {dir: "auto"}, title) : null,
    element("div", {class: "wide"}, drawn))
}
