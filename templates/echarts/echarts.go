// Package echarts holds Apache ECharts as npm has it, for charts that can be
// pointed at, if "make assets" had put it into the folder npm when the
// program was built. Nothing may depend on its being there: "go install"
// builds without it. It must not know what is drawn with it.
package echarts

import (
	"embed"
	"encoding/json"
	"io/fs"
)

//go:embed npm
var npm embed.FS

// Files returns the packages echarts and zrender, each in a folder of its
// name, as far as a site needs them; nil when the program was built without.
func Files() fs.FS {
	if Version() == "" {
		return nil
	}
	files, err := fs.Sub(npm, "npm")
	if err != nil {
		panic(err) // a name that is valid
	}
	return files
}

// Version returns the version of ECharts, such as "6.1.0"; "" when the
// program was built without.
func Version() string {
	b, err := npm.ReadFile("npm/echarts/package.json")
	if err != nil {
		return ""
	}
	var p struct{ Version string }
	if err := json.Unmarshal(b, &p); err != nil {
		return ""
	}
	return p.Version
}
