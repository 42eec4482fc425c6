// The program runs the test cases of Kubernetes' SIG Scheduling against the cluster of a kubeconfig.
//
// The cases, their helpers and the flags are Kubernetes' own. Its complete end-to-end test program
// has the cases of all other SIGs too, with their cloud providers and storage drivers, and takes
// five times as long to build; this one links the cases of one package.
package main

import (
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/testinit" // adds the flags of logs
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init" // shows a namespace after a failure
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"  // waits for nodes before a case
	_ "k8s.io/kubernetes/test/e2e/scheduling"           // the cases
)

type outcome struct{ failed bool }

// Fail notes that a case has failed; it takes the place of testing.T.
func (o *outcome) Fail() { o.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	logs.InitLogs()
	defer logs.FlushLogs()
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	found := &outcome{}
	if !ginkgo.RunSpecs(found, "Kubernetes e2e suite", suite, reporter) || found.failed {
		os.Exit(1)
	}
}
