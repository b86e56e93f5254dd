package main

import (
	"strings"
	"testing"

	"speedmatrix/templates/echarts"
)

// With ECharts and without, the program works, and says which it is.
func TestChartLayer(t *testing.T) {
	layer, err := chartLayer()
	if err != nil {
		t.Fatalf("%v; make assets fetches all of it", err)
	}
	_, stdout, _ := commandLine("version")
	says := strings.Contains(stdout, "\nECharts "+echarts.Version()+"\n")
	if built := echarts.Version() != ""; built != (layer != nil) || built != says || says == strings.Contains(stdout, "\nno ECharts: ") {
		t.Errorf("ECharts %q, a layer %v, and version prints %q", echarts.Version(), layer != nil, stdout)
	}
}
