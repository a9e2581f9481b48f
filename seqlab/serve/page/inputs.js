// Inputs of a model: a text or the content of a file. Files are read here; the server gets numbers, never a file name.

const LONGER_SIDE = 128 // pixels of a picture's longer side; the server scales it to the size of the model
const files = new Map()

/** What is sent for an input of the page: the numbers of an opened file, rows of numbers, or the text itself. */
export function payload(input) {
  if (files.has(input)) return files.get(input)
  return parseRows(input) ?? input
}

/** Read a picture, a table or a text from a file; return the text for the input box. */
export async function readFile(file) {
  if (!file.type.startsWith("image/")) return file.text()
  const picture = await createImageBitmap(file)
  const scale = Math.min(1, LONGER_SIDE / Math.max(picture.width, picture.height))
  const [width, height] = [picture.width, picture.height].map(side => Math.max(1, Math.round(side * scale)))
  const context = new OffscreenCanvas(width, height).getContext("2d")
  context.drawImage(picture, 0, 0, width, height)
  const {data} = context.getImageData(0, 0, width, height), share = level => Number((level / 255).toFixed(4))
  const pixel = (x, y) => Array.from(data.subarray(4 * (y * width + x), 4 * (y * width + x) + 3), share)
  const row = y => Array.from({length: width}, (_, x) => pixel(x, y))
  files.set(file.name, Array.from({length: height}, (_, y) => row(y)))
  return file.name
}

/** Store an example of the server; return its text, or a name if it is a picture. */
export function addExample(example, name) {
  if (!example.startsWith("data:image/")) return example
  files.set(name, example)
  return name
}

/** The picture of a name as a data URL, or null if it is not an example of the server. */
export const imageOf = name => typeof files.get(name) === "string" ? files.get(name) : null

/** Lists of lists of numbers from a text in JSON, or null if it is another text. */
function parseRows(text) {
  if (!text.startsWith("[[")) return null
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
