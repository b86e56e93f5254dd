package main

import (
	"speedmatrix/render"
	"speedmatrix/templates/echarts"
)

// chartLayer returns what makes charts interactive, nil where ECharts was
// not there when this program was built.
func chartLayer() (*render.Layer, error) {
	files := echarts.Files()
	if files == nil {
		return nil, nil
	}
	return render.NewLayer(files)
}
