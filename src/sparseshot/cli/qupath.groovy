// sparseshot in QuPath: Automate > Script editor, open this file, then Run or Run for project.
// Written for QuPath 0.5 and later with its documented calls. NOT TESTED in QuPath itself.

import qupath.lib.common.GeneralTools

// The program, by its name or its full path.
def command = %COMMAND%
// "export" the annotations of the image; "train" with all that were exported; or "predict" the cells.
def action = %ACTION%
// Folder of the model: train writes it, and the next time its name with -2, -3 and so on, from the last one;
// predict reads the last. "starter" is a model without training.
def model = %MODEL%

def server = getCurrentServer()
def slide = GeneralTools.toPath(server.getURIs().iterator().next())
if (slide == null)
    throw new IllegalStateException("sparseshot reads files of this computer, and this image is none")
def name = slide.getFileName().toString()
def key = name + "-" + Integer.toHexString(slide.toString().hashCode()) // two images may have one name
def folder = buildFilePath(getProject() == null ? slide.getParent().toString() : PROJECT_BASE_DIR, "sparseshot")
mkdirs(folder)

def run = { List<String> words ->
    def process = new ProcessBuilder(words).redirectErrorStream(true).start()
    process.getOutputStream().close()
    process.getInputStream().eachLine("UTF-8") { println(it) }
    if (process.waitFor() != 0)
        throw new IllegalStateException("sparseshot failed; see the lines above")
}
def last = model, next = model
for (int number = 2; new File(next, "model.pt").exists(); number++) {
    last = next
    next = model + "-" + number
}
def um = server.getPixelCalibration().getAveragedPixelSizeMicrons()
def size = Double.isNaN(um as double) ? [] : ["--mpp", um.toString()]

if (action == "export" || action == "train") {
    def marks = buildFilePath(folder, key + ".geojson")
    exportObjectsToGeoJson(getAnnotationObjects(), marks, "FEATURE_COLLECTION")
    def pairs = new File(buildFilePath(folder, "pairs.csv"))
    def line = [slide.toString(), marks].collect { '"' + it.replace('"', '""') + '"' }.join(",")
    if (!pairs.exists())
        pairs.setText("slide,marks\n", "UTF-8")
    if (!pairs.readLines("UTF-8").contains(line))
        pairs.append(line + "\n", "UTF-8")
    if (action == "train")
        run([command, "train", "--pairs", pairs.toString(), "--out", next] + (next == model ? [] : ["--from", last]) + size)
} else {
    def found = buildFilePath(folder, "found", key)
    mkdirs(found)
    run([command, "predict", last, slide.toString(), "--out", found, "--force"] + size)
    def result = new File(found).listFiles().find { new File(it, "qupath.zip").exists() }
    clearDetections() // those of the last prediction, and any others
    importObjectsFromFile(new File(result, "qupath.zip").toString())
    fireHierarchyUpdate()
    println(name + ": " + getDetectionObjects().size() + " cells")
}
