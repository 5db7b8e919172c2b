// sparseshot in QuPath: Automate > Script editor, open this file, then Run or Run for project.
// Written for QuPath 0.5 and later with its documented calls. NOT TESTED in QuPath itself.

import groovy.json.JsonSlurper
import qupath.lib.common.GeneralTools

// The program, by its name or its full path.
def command = %COMMAND%
// "export" the annotations of the image; "train" with all that were exported; or "predict" the cells.
def action = %ACTION%
// Folder of the model: train writes it, predict reads it. "starter" is a model without training.
def model = %MODEL%

def server = getCurrentServer()
def slide = GeneralTools.toPath(server.getURIs().iterator().next())
if (slide == null)
    throw new IllegalStateException("sparseshot reads files of this computer, and this image is none")
def name = slide.getFileName().toString()
def folder = buildFilePath(getProject() == null ? slide.getParent().toString() : PROJECT_BASE_DIR, "sparseshot")
mkdirs(folder)

def run = { List<String> words ->
    def process = new ProcessBuilder(words).redirectErrorStream(true).start()
    process.getOutputStream().close()
    process.getInputStream().eachLine("UTF-8") { println(it) }
    if (process.waitFor() != 0)
        throw new IllegalStateException("sparseshot failed; see the lines above")
}
def um = server.getPixelCalibration().getAveragedPixelSizeMicrons()
def size = Double.isNaN(um as double) ? [] : ["--mpp", um.toString()]

if (action == "export" || action == "train") {
    def marks = buildFilePath(folder, name + ".geojson")
    exportObjectsToGeoJson(getAnnotationObjects(), marks, "FEATURE_COLLECTION")
    def pairs = new File(buildFilePath(folder, "pairs.csv"))
    def line = [slide.toString(), marks].collect { '"' + it.replace('"', '""') + '"' }.join(",")
    if (!pairs.exists())
        pairs.setText("slide,marks\n", "UTF-8")
    if (!pairs.readLines("UTF-8").contains(line))
        pairs.append(line + "\n", "UTF-8")
    if (action == "train")
        run([command, "train", "--pairs", pairs.toString(), "--out", model] + size)
} else {
    def found = buildFilePath(folder, "found")
    run([command, "predict", model, slide.toString(), "--out", found, "--force"] + size)
    def result = new File(found).listFiles().find {
        def summary = new File(it, "summary.json")
        summary.exists() && new JsonSlurper().parse(summary, "UTF-8").slide == name
    }
    clearDetections()
    importObjectsFromFile(new File(result, "qupath.zip").toString())
    fireHierarchyUpdate()
    println(name + ": " + getDetectionObjects().size() + " cells")
}
