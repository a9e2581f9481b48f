// Beam: the search as a tree, and a replay with another width or length penalty.
import {element, bdiText, formatNumber} from "./element.js"
import {Pane, section} from "./pane.js"
import {tree} from "./tree.js"

export class BeamPane extends Pane {
  static unavailable(model) {
    const nothing = `A '${model.task}' model needs no search: its answer is the most probable label.`
    return model.views.includes("beam") ? "" : nothing
  }

  viewToSave() {
    return {view: "beam", options: this.options}
  }

  async render(signal) {
    this.controls([
      {key: "beam", kind: "slider", label: "Beam size", min: 1, max: 10, step: 1, value: 5,
        hint: "Number of hypotheses kept at each step (E60). A change runs the model again."},
      {key: "penalty", kind: "slider", label: "Length penalty", min: 0, max: 2, step: 0.1, value: 1,
        hint: "Scores are divided by the length to this power (E61): 0 prefers short texts."},
      {key: "replay_beam", kind: "slider", label: "Replay: beam size", min: 1, max: 10, step: 1, value: 5,
        hint: "The result of another beam size in this tree, without running the model."},
      {key: "replay_penalty", kind: "slider", label: "Replay: length penalty", min: 0, max: 2, step: 0.1, value: 1,
        hint: "The ranking with another length penalty."},
    ])
    this.options = {beam: this.number("beam"), length_penalty: this.number("penalty"),
      replay_beam: this.number("replay_beam"), replay_penalty: this.number("replay_penalty")}
    const data = await this.fetchView("beam", this.options, signal)
    const [winner, replayed] = [data.hypotheses[0], data.replayed?.[0]]
    const same = winner && replayed && winner.output === replayed.output
    this.showResult(
      element("div", {class: "pair"}, this.ranking("Result of the search", data.hypotheses, "found",
        "A score is the sum of log-probabilities divided by length to the power of the penalty."),
        this.ranking("Result of the replay", data.replayed ?? [], "replayed",
          same ? "The best text is the same." : "Another text is the best: its path is dashed in the tree.")),
      tree(data.nodes, {best: new Set(winner?.path ?? []), other: new Set(same ? [] : replayed?.path ?? []),
        title: `${data.nodes.length} hypotheses: pale ones were pruned, the blue path is the best`}))
  }

  ranking(title, hypotheses, key, about) {
    return section(title, about, hypotheses.length ? element("table", {class: `ranking ${key}`},
      element("tr", {}, ...["score", "log p", "text"].map(name => element("th", {scope: "col"}, name))),
      ...hypotheses.map((each, k) => element("tr", {class: k ? "" : "winner"},
      element("td", {"data-value": String(each.score)}, formatNumber(each.score, 4)),
        element("td", {}, formatNumber(each.log_probability, 4)), element("td", {}, bdiText(each.output || "(nothing)"),
          each.ended ? null : element("small", {}, " unfinished")))))
      : element("p", {class: "hint"}, "No result: the replay leaves the tree. Search with a larger beam."))
  }
}
