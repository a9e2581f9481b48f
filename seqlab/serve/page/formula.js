// One number with the equation that made it, filled with the actual values.
import {element, shown} from "./element.js"
import {grid, thumbnail} from "./matrix.js"
import {scaleOf} from "./palette.js"

const FEW = 4 // terms written out before the dots

/** What the view `number` found, as a card: the formula, its sums term by term, and what comes out. */
export function formula(found) {
  return element("div", {class: "formula"},
    element("p", {class: "law"}, element("span", {class: "badge",
      title: "The number of the equation in the lectures"}, found.equation || "value"), " ",
      element("span", {class: "math"}, found.formula)),
    ...found.products.map(product),
    ...found.lines.map(line => element("p", {class: "math"}, line)),
    element("p", {class: "math outcome"}, `${found.name} = `,
      element("b", {"data-value": String(found.value)}, shown(found.value, 5))))
}

/** A sum of products: both vectors as strips, the first terms in numbers, all of them on demand. */
function product({what, left, right, a, b, sum}) {
  const terms = a.map((value, k) => value * b[k])
  const written = k => `${shown(a[k])} × ${shown(b[k])}`
  const few = a.length <= FEW + 1 ? a.map((_, k) => written(k)) : [...a.slice(0, FEW).map((_, k) => written(k)), "…",
    written(a.length - 1)]
  const strip = (name, values) => element("div", {class: "strip"}, element("small", {}, name),
    thumbnail(grid([values]), scaleOf(values), {width: Math.min(260, Math.max(40, 12 * values.length)), height: 14,
      label: `${name}: ${values.length} numbers`}))
  return element("div", {class: "product"}, strip(left, a), strip(right, b), strip("product", terms),
    element("p", {class: "math"}, `${what} = ${few.join(" + ")} = `, element("b", {}, shown(sum, 5))),
    element("details", {}, element("summary", {}, `all ${a.length} terms`),
      element("div", {class: "wide"}, element("table", {class: "terms"},
        element("tr", {}, ...["", left, right, "product"].map(name => element("th", {scope: "col"}, name))),
        ...terms.map((term, k) => element("tr", {}, element("th", {scope: "row"}, String(k)),
          ...[a[k], b[k], term].map(value => element("td", {}, shown(value, 4)))))))))
}
