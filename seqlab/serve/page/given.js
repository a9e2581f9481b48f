// What a model is given: a text, or what a file holds. Files are read here; the server is sent numbers, never a name.

const SIDE = 128 // pixels of a picture's longer side: the server brings it to the size that the model knows
const files = new Map()

/** What is sent for an input of the page: the numbers of a file that was opened, rows of numbers, or the text. */
export function given(input) {
  if (files.has(input)) return files.get(input)
  return rows(input) ?? input
}

/** Read a file that a person chose: a picture, rows of numbers, or a text. Gives what stands in the input for it. */
export async function open(file) {
  if (!file.type.startsWith("image/")) return file.text()
  const picture = await createImageBitmap(file), scale = Math.min(1, SIDE / Math.max(picture.width, picture.height))
  const [width, height] = [picture.width, picture.height].map(side => Math.max(1, Math.round(side * scale)))
  const context = new OffscreenCanvas(width, height).getContext("2d")
  context.drawImage(picture, 0, 0, width, height)
  const {data} = context.getImageData(0, 0, width, height), share = level => Number((level / 255).toFixed(4))
  const pixel = (x, y) => Array.from(data.subarray(4 * (y * width + x), 4 * (y * width + x) + 3), share)
  const row = y => Array.from({length: width}, (_, x) => pixel(x, y))
  files.set(file.name, Array.from({length: height}, (_, y) => row(y)))
  return file.name
}

/** What stands in the input for an example of the server's: a text for itself, a picture has a name. */
export function offered(example, name) {
  if (!example.startsWith("data:image/")) return example
  files.set(name, example)
  return name
}

/** The picture that a name stands for, where it is one of the server's. */
export const pictured = name => typeof files.get(name) === "string" ? files.get(name) : null

/** Lists of lists of numbers, where a text is that. */
function rows(text) {
  if (!text.startsWith("[[")) return null
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
