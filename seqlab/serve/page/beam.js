// Beam: the whole search as a tree, and the search once more with another width or length penalty.
import {element, quoted, shown} from "./element.js"
import {Pane, section} from "./pane.js"
import {tree} from "./tree.js"

export class BeamPane extends Pane {
  static refuses(model) {
    const nothing = `A '${model.task}' model does not use beam search: its answer is the likeliest label.`
    return model.views.includes("beam") ? "" : nothing
  }

  saved() {
    return {view: "beam", options: this.options}
  }

  async render(signal) {
    this.controls([
      {key: "beam", kind: "slider", label: "Width searched", min: 1, max: 10, step: 1, value: 5,
        hint: "How many hypotheses the search keeps at each step (E60): the model is asked again."},
      {key: "penalty", kind: "slider", label: "Length penalty searched", min: 0, max: 2, step: 0.1, value: 1,
        hint: "Scores are divided by length to this power (E61): 0 prefers short texts."},
      {key: "replay_beam", kind: "slider", label: "Width replayed", min: 1, max: 10, step: 1, value: 5,
        hint: "What another width would have found in this tree, without asking the model."},
      {key: "replay_penalty", kind: "slider", label: "Length penalty replayed", min: 0, max: 2, step: 0.1, value: 1,
        hint: "What another penalty would have ranked first."},
    ])
    this.options = {beam: this.number("beam"), length_penalty: this.number("penalty"),
      replay_beam: this.number("replay_beam"), replay_penalty: this.number("replay_penalty")}
    const data = await this.ask("beam", this.options, signal)
    const [won, again] = [data.hypotheses[0], data.replayed?.[0]]
    const same = won && again && won.output === again.output
    this.fill(
      element("div", {class: "pair"}, this.ranking("Found by the search", data.hypotheses, "found",
        "The width and penalty searched; a score is the sum of log-probabilities over length to the penalty."),
        this.ranking("Found by the replay", data.replayed ?? [], "replayed",
          same ? "The same text wins." : "Another text wins: its path is dashed in the tree.")),
      tree(data.nodes, {best: new Set(won?.path ?? []), other: new Set(same ? [] : again?.path ?? []),
        title: `${data.nodes.length} hypotheses were looked at; pale ones were given up, the blue path won`}))
  }

  ranking(title, found, key, about) {
    return section(title, about, found.length ? element("table", {class: `ranking ${key}`},
      element("tr", {}, ...["score", "log p", "text"].map(name => element("th", {scope: "col"}, name))),
      ...found.map((each, k) => element("tr", {class: k ? "" : "winner"},
      element("td", {"data-value": String(each.score)}, shown(each.score, 4)),
        element("td", {}, shown(each.log_probability, 4)), element("td", {}, quoted(each.output || "(nothing)"),
          each.ended ? null : element("small", {}, " not ended")))))
      : element("p", {class: "hint"}, "Nothing: this beam leaves the tree. Search with a wider one."))
  }
}
