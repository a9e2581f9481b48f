// A stage of a model: the numbers recorded at one tap, and the names of their rows and columns.
import {scaleOf} from "./palette.js"

const BLOCKS = {attention: "self-attention", cross: "attention to the source", feed_forward: "feed-forward",
  first: "add & norm", second: "add & norm", third: "add & norm", forward: "left to right", backward: "right to left"}

const SHARES = ["weights", "halt", "belief", "posterior", "transform", "i", "f", "o", "r", "u", "z"] // from 0 to 1

export class Stage {
  /** `about` is a stage of the view lens, `sides` its lists of tokens: source, written and answered. */
  constructor(about, sides) {
    Object.assign(this, {name: about.name, what: about.what, shape: about.shape, about, sides})
    const parts = about.name.split(".")
    this.leaf = parts.at(-1)
    this.side = parts.length > 1 ? parts[0] : "answer"
    const block = parts.length > 2 && /^\d+$/.test(parts[1]) ? Number(parts[1]) : null
    this.block = block
    this.inside = parts.slice(block === null ? 1 : 2, -1).map(part => BLOCKS[part] ?? part).join(", ")
    if (block === null && parts[1] === "attention") this.inside = BLOCKS.cross
    this.share = SHARES.includes(this.leaf)
    if (about.values) this.data = Float64Array.from(about.values.flat(Infinity), value => value ?? NaN)
  }

  get title() {
    return this.what || this.leaf
  }

  get heads() {
    return this.shape.length === 3 ? this.shape[0] : 1
  }

  /** Set the numbers from the trace; the view lens leaves them out for a long input. */
  fill(tensor) {
    this.shape = tensor.shape
    this.data = tensor.data
    this.rounded = true
  }

  /** The matrix of one head. */
  grid(head = 0) {
    const [rows, columns] = this.shape.length === 1 ? [this.shape[0], 1] : this.shape.slice(-2)
    return {rows, columns, data: this.data.subarray(head * rows * columns, (head + 1) * rows * columns)}
  }

  scale() {
    return scaleOf(this.data, {share: this.share})
  }

  rows() {
    const {source, written, answered} = this.sides, count = this.grid().rows
    const near = this.name.startsWith("pooling") ? [] : this.ofSource ? [source]
      : ["weights", "score"].includes(this.leaf) && this.toSource ? [answered] : [written, source, answered]
    return near.find(side => side.length === count) ?? Array.from({length: count}, (_, k) => String(k + 1))
  }

  /** Names of the columns if they are tokens; features have none. */
  columns() {
    if (!["weights", "score"].includes(this.leaf)) return []
    const {source, written} = this.sides, count = this.grid().columns
    return [this.toSource || this.side === "encoder" || this.side === "pooling" ? source : written].find(side =>
      side.length === count) ?? []
  }

  get toSource() {
    return this.name.includes(".cross.") || this.name.startsWith("decoder.attention")
  }

  get ofSource() {
    return this.side === "encoder" || (this.toSource && ["k", "v", "memory"].includes(this.leaf))
  }
}
